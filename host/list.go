package host

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/servetrace/servetrace/internal/spelling"
)

// entry is one entry of the list, or one plugin of a folder that stands in it.
// It is comparable.
type entry struct {
	name     string // of a folder: none, but for one that is known by expand only
	where    string // path with a slash, bare name, or address
	attached bool   // where is an address: somebody else starts the plugin
	folder   bool   // where ends in a slash: its executables are the plugins
	named    bool   // the name stands in the list
	digest   string // the 32 bytes that the file's SHA-256 must be; empty: any
	from     string // the folder that has brought the plugin, as in the list
}

// socketScheme begins the address of a plugin that is attached to.
const socketScheme = "unix://"

// namePattern is what a plugin may be called: it becomes a label of metrics
// and a word in logs.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// unescape undoes the three escapes of the list. Nothing else is an escape: a
// path may hold any other per cent sign.
var unescape = strings.NewReplacer("%2C", ",", "%2c", ",", "%3D", "=", "%3d", "=", "%40", "@")

// pinMark stands between an executable and the digest that it must have.
const pinMark = "@sha256:"

// parseList reads the list of plugins; an empty text has none. All faults are
// reported at once. What a folder has, expand says.
func parseList(text string) ([]entry, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var (
		list []entry
		errs []error
		seen = map[string]string{}
	)
	for item := range strings.SplitSeq(text, ",") {
		e, err := parseEntry(strings.TrimSpace(item))
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: entry %q: %w", EnvPlugins, item, err))
			continue
		}
		if other, ok := seen[e.name]; ok && !e.isFolder() {
			errs = append(errs, fmt.Errorf("%s: entries %q and %q are both named %q; write NAME=%s to name one of them",
				EnvPlugins, other, e.where, e.name, e.where))
		}
		if !e.folder {
			seen[e.name] = e.where
		}
		list = append(list, e)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return list, nil
}

func parseEntry(item string) (entry, error) {
	name, where, named := strings.Cut(item, "=")
	if !named {
		name, where = "", item
	}
	switch {
	case where == "":
		return entry{}, errors.New("names no plugin; write a path or a name, or remove the comma")
	case strings.HasPrefix(where, "~"):
		return entry{}, errors.New(`"~" is a home folder to a shell only; write the whole path, or ./~ for a file of that name`)
	case strings.Contains(where, "="):
		return entry{}, errors.New("has two equals signs; write one in a path as %3D")
	case strings.Contains(where, "://") || strings.HasPrefix(where, "unix:"): // "unix:/PATH" is how gRPC writes it
		if err := checkAddress(where); err != nil {
			return entry{}, err
		}
		return entry{name: nameOf(name, named, where), where: unescape.Replace(where), attached: true, named: named}.checked()
	}
	where, digest, err := cutPin(where)
	if err != nil {
		return entry{}, err
	}
	if strings.HasSuffix(where, "/") {
		return folderEntry(name, named, unescape.Replace(where), digest)
	}
	return entry{name: nameOf(name, named, where), where: unescape.Replace(where), named: named, digest: digest}.checked()
}

// nameOf is an entry's own name, or that of its file.
func nameOf(name string, named bool, where string) string {
	if named {
		return name
	}
	return fileName(unescape.Replace(where))
}

// fileName is what a plugin is called that has no other name.
func fileName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// checked refuses a name that is none.
func (e entry) checked() (entry, error) {
	if !namePattern.MatchString(e.name) {
		return entry{}, fmt.Errorf("the name %q must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH, and a comma between plugins", e.name)
	}
	return e, nil
}

// cutPin takes the pin off an executable; digest is empty where there is none.
func cutPin(text string) (where, digest string, err error) {
	where, pin, pinned := strings.Cut(text, "@")
	if !pinned {
		return where, "", nil
	}
	hexDigits, ok := strings.CutPrefix("@"+pin, pinMark)
	if !ok {
		return "", "", errors.New("what follows an at sign must be sha256: and the 64 hexadecimal digits of the file's digest; write an at sign in a path as %40")
	}
	sum, err := hex.DecodeString(hexDigits)
	if err != nil || len(sum) != sha256.Size {
		return "", "", fmt.Errorf("the pin must be %s and 64 hexadecimal digits, it has %d characters; \"servetrace plugin pin PATH\" prints it, and an at sign in a path is written %%40",
			pinMark, len(hexDigits))
	}
	if where == "" {
		return "", "", errors.New("names no plugin before its pin; write a path or a name there")
	}
	return where, string(sum), nil
}

// folderEntry is an entry that is a folder; with a name or a pin of its own it
// is none.
func folderEntry(name string, named bool, where, digest string) (entry, error) {
	switch {
	case named:
		return entry{}, fmt.Errorf("a folder has no name of its own (%s=), its plugins are called as their files; write %s", name, where)
	case digest != "":
		return entry{}, errors.New("a folder has no pin (" + pinMark + "…), for its files may change; pin each executable")
	}
	return entry{where: where, folder: true}, nil
}

// checkAddress tells what is wrong with an address as it stands in the list.
func checkAddress(where string) error {
	path, ok := strings.CutPrefix(where, socketScheme)
	switch {
	case !ok:
		return errors.New("is no address that a host attaches to; write unix:///PATH of a plugin's socket, or name an executable")
	case strings.Contains(path, "@"):
		return errors.New("an address has no pin (@sha256:…): this host does not start what listens there; remove it, or write an at sign in a path as %40")
	case path == "" || strings.HasSuffix(path, "/"):
		return errors.New("names no socket; write unix:///PATH")
	case path[0] != '/' && path[0] != '.':
		return fmt.Errorf("the path of a socket must be absolute; write unix:///%s, or unix://./%s for one in the working folder", path, path)
	}
	return nil
}

// resolve gives the path of the socket or the executable: the one of an
// address; where itself if it is a path; else the first file of that name in
// dirs. A bare name that is nowhere is an error that says where it was looked
// for.
func (e entry) resolve(dirs []string) (string, error) {
	if e.attached {
		return strings.TrimPrefix(e.where, socketScheme), nil
	}
	if strings.Contains(e.where, "/") {
		return e.where, nil
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, e.where)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", e.notIn(dirs)
}

// notIn returns the error of a bare name that is in none of dirs. It names the
// folders that do not exist, and a file whose name is much like it.
func (e entry) notIn(dirs []string) error {
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
	if near := spelling.Nearest(e.where, names); near != "" {
		advice = "did you mean " + near + "? Else build it there"
	}
	return fmt.Errorf("%w %q in %s; %s, write its path, or set %s",
		errNowhere, e.where, strings.Join(looked, ", "), advice, EnvPluginDir)
}

// errNowhere marks a bare name that no folder has.
var errNowhere = errors.New("there is no plugin")
