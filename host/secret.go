package host

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/wire"
)

// secrets looks up what references of one plugin's document stand for, each
// once, and remembers it as secret.
type secrets struct {
	// environ are the variables that may be referred to; withheld tells of
	// others, which lock-down keeps from the plugin.
	environ  map[string]string
	withheld func(name string) bool
	values   map[string]string // by reference
}

// secretsFor looks up for the document of a plugin.
func (c *Config) secretsFor(plugin string) *secrets {
	s := &secrets{environ: map[string]string{}, values: map[string]string{}}
	for _, kv := range c.Environ { // the last counts, as for a process
		name, value, _ := strings.Cut(kv, "=")
		s.environ[name] = value
	}
	s.withheld = func(name string) bool { return c.withheld(plugin, name) }
	return s
}

// texts are all texts that must not be shown: what was looked up, and what the
// variables hold that the plugin may get. Which of them it declares is not known
// before it runs.
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

// mostSecretBytes is the largest file that a reference may name.
const mostSecretBytes = 64 << 10

// lookUp gives the value of a reference. The error names the reference, and
// never a value.
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
		err = errors.New("its value is no UTF-8 text, and can not stand in a document")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", shownReference(reference), err)
	}
	s.values[reference] = value
	return value, nil
}

// Reference is one that a plugin's document has.
type Reference struct {
	// Text is how it is written, "${env:NAME}"; of one that is of no known form
	// there is only what can not be a secret.
	Text string
	// Err is why it can not be resolved; nil: it can. It has no value in it.
	Err error
}

// References gives the references in the document that c has for a plugin, each
// once, in their order, tried as a Host does at each start of the plugin: in the
// environment of c, and in files, which it blocks for. Without a document there
// are none. The error is that of a document which can not be read, or has a
// reference that does not end.
func (c Config) References(plugin string) ([]Reference, error) {
	if c.Environ == nil {
		c.Environ = environ()
	}
	is := c.PluginConfigs[plugin]
	document, err := is.load()
	if err != nil {
		return nil, err
	}
	var list []Reference
	known := map[string]bool{}
	refs := c.secretsFor(plugin)
	_, err = resolveReferences(document, func(reference string) (string, error) {
		value, err := refs.lookUp(reference)
		if !known[reference] {
			known[reference] = true
			list = append(list, Reference{shownReference(reference), errors.Unwrap(err)})
		}
		return value, nil // the others are tried too
	})
	if err != nil && is.File != "" {
		err = fmt.Errorf("configuration file %q: %w", is.File, err)
	}
	return list, err
}

// shownReference is a reference as an error names it. What is not of a form
// that is known may be a part of anything: of that only a word is shown.
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
		return "", fmt.Errorf("under lock-down (%s) a document refers only to variables that %s names for its plugin; add NAME:%s there",
			EnvLockdown, EnvPluginEnv, name)
	case s.environ[name] == "":
		return "", errors.New("the variable is not set, or empty, in the environment of this process; set it")
	}
	return s.environ[name], nil
}

// secretFile reads a file for a reference; a line break at its end is not part
// of the secret.
func secretFile(name string) (string, error) {
	if !path.IsAbs(name) {
		return "", errors.New("the path must be absolute")
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe would block
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errors.New("there is no such file; create it, or correct the path")
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("this process (user %d) may not read it%s; see its owner and mode, and those of its folders", os.Geteuid(), ownerOf(name))
	case err != nil:
		return "", err
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("this is no regular file (%v)", info.Mode().Type())
	}
	data, err := io.ReadAll(io.LimitReader(f, mostSecretBytes+1))
	if err != nil {
		return "", err
	}
	if len(data) > mostSecretBytes {
		return "", fmt.Errorf("the file has more than %d bytes", mostSecretBytes)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", errors.New("the file is empty")
	}
	return value, nil
}

// ownerOf tells whose a file is, if that can be seen.
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

// secretName tells whether a variable looks as if it held a secret. One that
// names a file does not: its path is needed to understand an error.
func secretName(name string) bool {
	name = strings.ToUpper(name)
	for _, end := range []string{"_FILE", "_PATH", "_DIR"} {
		if strings.HasSuffix(name, end) {
			return false
		}
	}
	return name != "GOOGLE_APPLICATION_CREDENTIALS" && // a path
		slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// secretsOf are the texts of a variable that must not be shown: its value, if
// its name looks so, the values of a list of headers, and the password of an
// address.
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

// partsOf are a secret and what of it is one by itself: what follows the scheme
// in "Bearer X", the password that "Basic X" has, the texts of a JSON document
// such as Google's of service accounts.
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

// fewestJSON is the shortest text of a JSON document that is taken for a secret:
// shorter ones are words such as "service_account".
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
