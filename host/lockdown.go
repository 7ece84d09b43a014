package host

import (
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// validateLockdown wants what lock-down wants of the list. All faults of an
// entry are one error, with what to write instead.
func (c Config) validateLockdown(list []entry) error {
	if !c.Lockdown {
		return nil
	}
	var errs []error
	for _, e := range list {
		if text := e.notLockedDown(); text != "" {
			errs = append(errs, fmt.Errorf("%s: entry %q: under lock-down (%s) %s", EnvPlugins, e.where, EnvLockdown, text))
		}
	}
	for _, dir := range c.PluginDirs {
		if !strings.HasPrefix(dir, "/") {
			errs = append(errs, fmt.Errorf("%s: folder %q: under lock-down (%s) it must be an absolute path", EnvPluginDir, dir, EnvLockdown))
		}
	}
	return errors.Join(errs...)
}

// notLockedDown says what lock-down has against an entry, and what to write.
func (e entry) notLockedDown() string {
	relative := strings.Contains(e.where, "/") && !strings.HasPrefix(e.where, "/")
	switch {
	case e.attached:
		return "only pinned executables run, and an address has no pin; name the plugin's executable"
	case e.isFolder():
		return fmt.Sprintf("only pinned executables run, and a folder has no pin; write what this prints: servetrace plugin pin --plugins %s/", strings.TrimSuffix(e.where, "/"))
	case relative && e.digest == "":
		return fmt.Sprintf("a path must be absolute and have a pin; write what this prints: servetrace plugin pin %s", e.where)
	case relative:
		return fmt.Sprintf("a path must be absolute; write %s", pinned(e.named, e.name, e.where, e.digest))
	case e.digest == "":
		return fmt.Sprintf("an executable must have a pin; write what this prints: servetrace plugin pin %s", e.where)
	}
	return ""
}

// escape is the other way round of unescape.
var escape = strings.NewReplacer(",", "%2C", "=", "%3D", "@", "%40")

// pinned is an entry of the list as lock-down wants it.
func pinned(named bool, name, path, digest string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	text := escape.Replace(path) + pinMark + hex.EncodeToString([]byte(digest))
	if named || fileName(path) != name {
		text = name + "=" + text
	}
	return text
}
