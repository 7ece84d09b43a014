package pluginlist

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/internal/yamlfile"
)

// secrets finds the values of references such as ${env:NAME} in the configuration of
// one plugin. It keeps the values, so that they can be redacted.
type secrets struct {
	// environ has the variables that a reference may name. withheld reports whether
	// lock-down keeps a variable from the plugin.
	environ  map[string]string
	withheld func(name string) bool
	values   map[string]string // values that were found, by reference
}

// secretsFor returns the secrets for the configuration of a plugin. It has no values yet.
func secretsFor(s *Settings, plugin string) *secrets {
	refs := &secrets{environ: map[string]string{}, values: map[string]string{}}
	for _, kv := range s.Environ { // if a variable occurs twice, the last value counts, as in a process
		name, value, _ := strings.Cut(kv, "=")
		refs.environ[name] = value
	}
	refs.withheld = func(name string) bool { return s.withheld(plugin, name) }
	return refs
}

// texts returns all texts that must be redacted: the values of references, and the
// secrets in environ. It includes variables that were not granted, because the plugin
// may declare any variable.
func (s *secrets) texts(environ []string) []string {
	var texts []string
	for _, value := range s.values {
		texts = append(texts, partsOf(value)...)
	}
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); !s.withheld(name) {
			texts = append(texts, secretsOf(name, value)...)
		}
	}
	slices.Sort(texts)
	return slices.Compact(texts)
}

// mostSecretBytes bounds the size of a file that a reference may name.
const mostSecretBytes = 64 << 10

// lookUp returns the value of a reference. The error never contains a value.
func (s *secrets) lookUp(reference string) (string, error) {
	if value, known := s.values[reference]; known {
		return value, nil
	}
	var value string
	var err error
	scheme, rest, _ := strings.Cut(reference, ":")
	switch scheme {
	case "env":
		value, err = s.variable(rest)
	case "file":
		value, err = secretFile(rest)
	default:
		err = errors.New("must be ${env:NAME} or ${file:/PATH}; write a literal ${ as $${")
	}
	if err == nil && (!utf8.ValidString(value) || strings.ContainsRune(value, 0)) {
		err = errors.New("its value is not UTF-8, which a configuration cannot contain")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", shownReference(reference), err)
	}
	s.values[reference] = value
	return value, nil
}

// shownReference returns a reference in a form that an error may contain. An unknown form
// may contain a secret, so at most its scheme is shown.
func shownReference(reference string) string {
	scheme, _, whole := strings.Cut(reference, ":")
	switch {
	case whole && (scheme == "env" || scheme == "file"), !whole && wire.ValidEnvPattern(scheme):
		return "${" + wire.Clip(reference) + "}"
	case whole && wire.ValidEnvPattern(scheme):
		return "${" + wire.Clip(scheme) + ":…}"
	}
	return "${…}"
}

func (s *secrets) variable(name string) (string, error) {
	switch {
	case strings.HasSuffix(name, "*") || !wire.ValidEnvPattern(name):
		return "", errors.New("must be the name of a variable")
	case s.withheld(name):
		return "", fmt.Errorf("under lock-down (%s) a configuration refers only to variables that %s names for its plugin; add NAME:%s there",
			EnvLockdown, EnvPluginEnv, name)
	case s.environ[name] == "":
		return "", errors.New("the variable is not set, or empty, in the environment of this process; set it")
	}
	return s.environ[name], nil
}

// secretFile returns the content of a file, without a line break at its end.
func secretFile(name string) (string, error) {
	if !path.IsAbs(name) {
		return "", errors.New("the path must be absolute")
	}
	data, err := yamlfile.Read(name, mostSecretBytes)
	if errors.Is(err, fs.ErrPermission) {
		return "", fmt.Errorf("this process (user %d) may not read it%s; check the owner and mode of the file and of its folders", os.Geteuid(), ownerOf(name))
	}
	if err != nil {
		return "", err
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", errors.New("the file is empty")
	}
	return value, nil
}

// ownerOf returns a text with the owner and the mode of a file, for an error. It
// returns "" if the file cannot be examined.
func ownerOf(name string) string {
	info, err := os.Stat(name)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf(", which belongs to user %d and has mode %04o", stat.Uid, info.Mode().Perm())
}

// secretWords are parts of the names of variables that hold secrets.
var secretWords = []string{
	"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "HEADERS", "COOKIE", "PRIVATE", "DSN",
}

// secretName reports whether the name of a variable suggests a secret. A variable with the
// path of a file does not count, because the path helps to understand an error.
func secretName(name string) bool {
	name = strings.ToUpper(name)
	for _, end := range []string{"_FILE", "_PATH", "_DIR"} {
		if strings.HasSuffix(name, end) {
			return false
		}
	}
	return name != "GOOGLE_APPLICATION_CREDENTIALS" && // it names a file
		slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// secretsOf returns the parts of a variable's value that must be redacted. If the name
// suggests a secret, they are the value and the values in a list of headers. The
// password of a URL is always redacted.
func secretsOf(name, value string) []string {
	var texts []string
	if u, err := url.Parse(value); err == nil && u.User != nil {
		if password, has := u.User.Password(); has {
			texts = append(texts, password, u.User.String())
		}
	}
	if !secretName(name) {
		return texts
	}
	texts = append(texts, partsOf(value)...)
	for item := range strings.SplitSeq(value, ",") {
		if _, header, ok := strings.Cut(item, "="); ok {
			texts = append(texts, partsOf(strings.TrimSpace(header))...)
			if plain, err := url.QueryUnescape(header); err == nil && plain != header {
				texts = append(texts, partsOf(strings.TrimSpace(plain))...)
			}
		}
	}
	return texts
}

// partsOf returns a secret, and its parts that are secrets by themselves: the token of
// "Bearer X", the password of "Basic X", and the texts of a JSON document, such as the key
// file of a Google service account.
func partsOf(secret string) []string {
	parts := []string{secret}
	if scheme, rest, ok := strings.Cut(secret, " "); ok && authSchemes[strings.ToLower(scheme)] {
		rest = strings.TrimSpace(rest)
		parts = append(parts, rest)
		if plain, err := base64.StdEncoding.DecodeString(rest); err == nil && utf8.Valid(plain) {
			_, password, _ := strings.Cut(string(plain), ":")
			parts = append(parts, string(plain), password)
		}
	}
	var document any
	if strings.HasPrefix(strings.TrimSpace(secret), "{") && json.Unmarshal([]byte(secret), &document) == nil {
		parts = jsonTexts(parts, document)
	}
	return parts
}

var authSchemes = map[string]bool{"bearer": true, "basic": true, "token": true, "apikey": true, "api-key": true, "key": true}

// fewestJSON is the length from which a text in a JSON document counts as a secret.
// Shorter texts are words such as "service_account".
const fewestJSON = 20

func jsonTexts(texts []string, value any) []string {
	switch v := value.(type) {
	case string:
		if len(v) >= fewestJSON {
			texts = append(texts, v)
		}
	case []any:
		for _, member := range v {
			texts = jsonTexts(texts, member)
		}
	case map[string]any:
		for _, member := range v {
			texts = jsonTexts(texts, member)
		}
	}
	return texts
}
