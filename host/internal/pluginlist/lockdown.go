package pluginlist

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// validateLockdown checks the rules of lock-down: each executable has a pin, and paths
// are absolute. Each error has the text to write instead.
func validateLockdown(s *Settings, list []Entry) error {
	if !s.Lockdown {
		return nil
	}
	var errs []error
	for _, e := range list {
		if text := e.notLockedDown(); text != "" {
			errs = append(errs, fmt.Errorf("%s: entry %q: under lock-down (%s) %s", e.variable(), e.Where, EnvLockdown, text))
		}
	}
	if python, _, _ := cutPin(s.Python); strings.Contains(python, "/") && !strings.HasPrefix(python, "/") {
		errs = append(errs, fmt.Errorf("%s=%q: under lock-down (%s) it must be an absolute path, or the name of a file in PATH", EnvPython, s.Python, EnvLockdown))
	}
	for _, dir := range s.PluginDirs {
		if !strings.HasPrefix(dir, "/") {
			errs = append(errs, fmt.Errorf("%s: folder %q: under lock-down (%s) it must be an absolute path", EnvPluginDir, dir, EnvLockdown))
		}
	}
	return errors.Join(errs...)
}

// notLockedDown returns the reason why lock-down forbids an entry, with the text to
// write instead. It returns "" if the entry is allowed.
func (e Entry) notLockedDown() string {
	relative := strings.Contains(e.Where, "/") && !strings.HasPrefix(e.Where, "/")
	switch {
	case e.Attached:
		return "only pinned executables run, and an address has no pin; name the plugin's executable"
	case e.Function != "" && e.Digest == "":
		return fmt.Sprintf("a function in Python runs only with a pinned interpreter, and its modules are not pinned; set %s to the output of: servetrace plugin pin PATH", EnvPython)
	case e.Function != "":
	case e.isFolder():
		return fmt.Sprintf("only pinned executables run, and a folder has no pin; write the output of: servetrace plugin pin --plugins %s/", strings.TrimSuffix(e.Where, "/"))
	case relative && e.Digest == "":
		return fmt.Sprintf("a path must be absolute and have a pin; write the output of: servetrace plugin pin %s", e.Where)
	case relative:
		return fmt.Sprintf("a path must be absolute; write %s", Pinned(e.Named, e.Name, e.Where, e.Digest))
	case e.Digest == "":
		return fmt.Sprintf("an executable must have a pin; write the output of: servetrace plugin pin %s", e.Where)
	}
	return ""
}

// escape writes a path so that unescape returns the path.
var escape = strings.NewReplacer(",", "%2C", "=", "%3D", "@", "%40")

// Pinned returns an entry of the list with an absolute path and a pin, as lock-down
// demands it.
func Pinned(named bool, name, path, digest string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	text := escape.Replace(path) + PinMark + hex.EncodeToString([]byte(digest))
	if named || fileName(path) != name {
		text = name + "=" + text
	}
	return text
}
