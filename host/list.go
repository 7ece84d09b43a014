package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// entry is one plugin of the list.
type entry struct {
	name     string
	where    string // path with a slash, bare name, or address
	attached bool   // where is an address: somebody else starts the plugin
}

// socketScheme begins the address of a plugin that is attached to.
const socketScheme = "unix://"

// namePattern is what a plugin may be called: it becomes a label of metrics
// and a word in logs.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// unescape undoes the three escapes of the list. Nothing else is an escape: a
// path may hold any other per cent sign.
var unescape = strings.NewReplacer("%2C", ",", "%2c", ",", "%3D", "=", "%3d", "=", "%40", "@")

// parseList reads the list of plugins; an empty text has none. All faults are
// reported at once. It looks at no file.
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
		if other, ok := seen[e.name]; ok {
			errs = append(errs, fmt.Errorf("%s: entries %q and %q are both named %q; write NAME=%s to name one of them",
				EnvPlugins, other, e.where, e.name, e.where))
		}
		seen[e.name] = e.where
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
	case strings.Contains(where, "="):
		return entry{}, errors.New("has two equals signs; write one in a path as %3D")
	case strings.Contains(where, "://") || strings.HasPrefix(where, "unix:"): // "unix:/PATH" is how gRPC writes it
		if err := checkAddress(where); err != nil {
			return entry{}, err
		}
	case strings.Contains(where, "@"):
		return entry{}, errors.New("a pin (@sha256:…) is not supported yet; write an at sign in a path as %40")
	case strings.HasSuffix(where, "/"):
		return entry{}, errors.New("a folder of plugins is not supported yet; name each executable")
	}
	where = unescape.Replace(where)
	if !named {
		name = strings.TrimSuffix(filepath.Base(where), filepath.Ext(where))
	}
	if !namePattern.MatchString(name) {
		return entry{}, fmt.Errorf("the name %q must be letters, digits, dots, dashes and underscores, 63 at most; write NAME=PATH", name)
	}
	return entry{name: name, where: where, attached: strings.HasPrefix(where, socketScheme)}, nil
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
	return "", fmt.Errorf("there is no plugin %q in %s; build it there, write its path, or set %s",
		e.where, strings.Join(dirs, ", "), EnvPluginDir)
}
