package pluginlist

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/spelling"
)

// Entry is one entry of the list, or one plugin of a folder in the list. It is
// comparable.
type Entry struct {
	Name     string // empty for a folder that ends in a slash
	Where    string // path with a slash, bare name, address, or function in Python, without escapes
	Function string // MODULE:FUNCTION of a function in Python, else empty
	Attached bool   // Where is an address, and another program starts the plugin
	Folder   bool   // Where ends in a slash, and its executables are the plugins
	Named    bool   // the list gives the name (NAME=…); otherwise it is made from Where
	Digest   string // pinned SHA-256 of the executable or the interpreter, 32 bytes; empty without a pin
	From     string // folder in the list that contains the plugin; empty if the list names the plugin itself
	// Processor is true for a processor plugin. Exporter is the name of the exporter
	// that it runs for. Exporter is empty if it runs for all exporters.
	Processor bool
	Exporter  string
}

// variable returns the name of the environment variable that contains the entry.
func (e Entry) variable() string {
	switch {
	case e.Exporter != "":
		return EnvExporterProcessors
	case e.Processor:
		return EnvProcessors
	}
	return EnvPlugins
}

// socketScheme is the beginning of an entry that is the address of a plugin's socket.
const socketScheme = "unix://"

// namePattern matches a plugin's name, which is used as a metric label and in log lines.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// unescape replaces the three escapes of the list by a comma, an equals sign and an at
// sign. Other per cent signs stay.
var unescape = strings.NewReplacer("%2C", ",", "%2c", ",", "%3D", "=", "%3d", "=", "%40", "@")

// PinMark separates an executable from its pinned digest in the list.
const PinMark = "@sha256:"

// parseLists joins all lists: first the processors that all exporters share, then the
// processors of single exporters, then the exporters. If there are no exporters, it
// returns no processors either.
func parseLists(s *Settings) ([]Entry, error) {
	exporters, err := parseList(EnvPlugins, s.Plugins)
	if len(exporters) == 0 {
		return nil, err
	}
	list, err := parseProcessors(EnvProcessors, s.Processors, "")
	errs := []error{err}
	for _, name := range sortedKeys(s.ExporterProcessors) {
		if indexOf(exporters, name) < 0 {
			errs = append(errs, noSuchPlugin(EnvExporterProcessors, name, exporters))
		}
		own, err := parseProcessors(EnvExporterProcessors, s.ExporterProcessors[name], name)
		errs = append(errs, err)
		list = append(list, own...)
	}
	list = append(list, exporters...)
	for i, e := range list {
		if at := indexOf(list, e.Name); !e.Folder && at < i && (list[at].variable() != e.variable() || list[at].Exporter != e.Exporter) {
			errs = append(errs, fmt.Errorf("%s: plugin %q is also in %s; each plugin is a process with a name of its own: write NAME=%s",
				e.variable(), e.Name, list[at].variable(), e.Where))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list, nil
}

// indexOf returns the position of the plugin name in a list, or -1.
func indexOf(list []Entry, name string) int {
	return slices.IndexFunc(list, func(e Entry) bool { return !e.Folder && e.Name == name })
}

// parseList parses the list of plugins in a variable. It reports all faults at once. It
// does not replace folders by their plugins.
func parseList(variable, text string) ([]Entry, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var (
		list []Entry
		errs []error
		seen = map[string]string{}
	)
	for item := range strings.SplitSeq(text, ",") {
		e, err := parseEntry(strings.TrimSpace(item))
		if err != nil {
			err = fmt.Errorf("%s: entry %q: %w", variable, item, err)
			if !slices.ContainsFunc(errs, func(e error) bool { return e.Error() == err.Error() }) {
				errs = append(errs, err)
			}
			continue
		}
		if other, ok := seen[e.Name]; ok && !e.isFolder() {
			errs = append(errs, fmt.Errorf("%s: entries %q and %q are both named %q; write NAME=%s to name one of them",
				variable, other, e.Where, e.Name, e.Where))
		}
		if !e.Folder {
			seen[e.Name] = e.Where
		}
		list = append(list, e)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list, nil
}

func parseEntry(item string) (Entry, error) {
	name, where, named := strings.Cut(item, "=")
	if !named {
		name, where = "", item
	}
	switch {
	case where == "":
		return Entry{}, errors.New("names no plugin; write a path or a name, or remove the comma")
	case strings.HasPrefix(where, "~"):
		return Entry{}, errors.New(`"~" is a home folder to a shell only; write the whole path, or ./~ for a file of that name`)
	case strings.Contains(where, "="):
		return Entry{}, errors.New("has two equals signs; write one in a path as %3D")
	case strings.Contains(where, "://") || strings.HasPrefix(where, "unix:"): // "unix:/PATH" is how gRPC writes it
		if err := checkAddress(where); err != nil {
			return Entry{}, err
		}
		return Entry{Name: nameOf(name, named, where), Where: unescape.Replace(where), Attached: true, Named: named}.checked()
	case strings.HasPrefix(where, pythonScheme):
		return functionEntry(name, named, where)
	}
	where, digest, err := cutPin(where)
	if err != nil {
		return Entry{}, err
	}
	if strings.HasSuffix(where, "/") {
		return folderEntry(name, named, unescape.Replace(where), digest)
	}
	return Entry{Name: nameOf(name, named, where), Where: unescape.Replace(where), Named: named, Digest: digest}.checked()
}

// nameOf returns the name that the list gives (named), or else a name made from the
// file name of the plugin.
func nameOf(name string, named bool, where string) string {
	if named {
		return name
	}
	return fileName(unescape.Replace(where))
}

// fileName returns the file name of a plugin without its extension, which is its name
// unless the list gives another name.
func fileName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// checked returns e, or an error if its name is not valid.
func (e Entry) checked() (Entry, error) {
	if !namePattern.MatchString(e.Name) {
		return Entry{}, fmt.Errorf("the name %q must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins", e.Name)
	}
	return e, nil
}

// cutPin splits text into an executable and its pinned digest. digest is empty if there
// is no pin.
func cutPin(text string) (where, digest string, err error) {
	where, pin, pinned := strings.Cut(text, "@")
	if !pinned {
		return where, "", nil
	}
	hexDigits, ok := strings.CutPrefix("@"+pin, PinMark)
	if !ok {
		return "", "", errors.New("the text after an at sign must be sha256: and the 64 hexadecimal digits of the file's digest; write an at sign in a path as %40")
	}
	sum, err := hex.DecodeString(hexDigits)
	if err != nil || len(sum) != sha256.Size {
		return "", "", fmt.Errorf("the pin must be %s and 64 hexadecimal digits, it has %d characters; \"servetrace plugin pin PATH\" prints it, and an at sign in a path is written %%40",
			PinMark, len(hexDigits))
	}
	if where == "" {
		return "", "", errors.New("names no plugin before its pin; write a path or a name there")
	}
	return where, string(sum), nil
}

// folderEntry returns an entry for a folder, or an error if it has a name or a pin.
func folderEntry(name string, named bool, where, digest string) (Entry, error) {
	switch {
	case named:
		return Entry{}, fmt.Errorf("a folder has no name of its own (%s=), its plugins have the names of their files; write %s", name, where)
	case digest != "":
		return Entry{}, errors.New("a folder has no pin (" + PinMark + "…), because its files may change; pin each executable")
	}
	return Entry{Where: where, Folder: true}, nil
}

// checkAddress returns an error if an address in the list is not valid.
func checkAddress(where string) error {
	path, ok := strings.CutPrefix(where, socketScheme)
	switch {
	case !ok:
		return errors.New("is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable")
	case strings.Contains(path, "@"):
		return errors.New("an address has no pin (@sha256:…): this host does not start that plugin; remove the pin, or write an at sign in a path as %40")
	case path == "" || strings.HasSuffix(path, "/"):
		return errors.New("names no socket; write unix:///PATH")
	case path[0] != '/' && path[0] != '.':
		return fmt.Errorf("the path of a socket must be absolute; write unix:///%s, or unix://./%s for one in the working folder", path, path)
	}
	return nil
}

// Resolve returns the path of the socket or the executable. For an address, it is the
// path in the address. For a function in Python, it is the interpreter. A path is
// returned as it is. A bare name is looked up in PluginDirs. If no folder has it, the
// error is ErrNowhere and names the folders.
func (e Entry) Resolve(s *Settings) (string, error) {
	switch {
	case e.Attached:
		return strings.TrimPrefix(e.Where, socketScheme), nil
	case e.Function != "":
		return interpreter(s)
	case strings.Contains(e.Where, "/"):
		return e.Where, nil
	}
	for _, dir := range s.PluginDirs {
		path := filepath.Join(dir, e.Where)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", e.notIn(s.PluginDirs)
}

// notIn returns the error for a bare name that is not in the folders dirs. If a file
// there has a similar name, the error names that file.
func (e Entry) notIn(dirs []string) error {
	var looked, names []string
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			dir += " (there is no such folder)"
		}
		looked = append(looked, dir)
		for _, file := range files {
			names = append(names, file.Name())
		}
	}
	advice := "build it there"
	if near := spelling.Nearest(e.Where, names); near != "" {
		advice = "did you mean " + near + "? Else build it there"
	}
	return fmt.Errorf("%w %q in %s; %s, write its path, or set %s",
		ErrNowhere, e.Where, strings.Join(looked, ", "), advice, EnvPluginDir)
}

// ErrNowhere is the error for a bare name that is in no folder of PluginDirs.
var ErrNowhere = errors.New("there is no plugin")
