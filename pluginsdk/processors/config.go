package processors

import (
	"errors"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// faults collects the errors of a config, so that Validate reports all of them at
// once.
type faults []error

// add notes one fault. path is within the config: "actions[0].key".
func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, &pluginsdk.ConfigError{Path: path, Err: fmt.Errorf(format, args...)})
}

// err is nil where nothing was added.
func (f faults) err() error { return errors.Join(f...) }

// within puts prefix before the path of each ConfigError that err joins.
func within(prefix string, err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all faults
		for _, one := range joined.Unwrap() {
			all = append(all, within(prefix, one))
		}
		return all.err()
	}
	var fault *pluginsdk.ConfigError
	if !errors.As(err, &fault) {
		return &pluginsdk.ConfigError{Path: prefix, Err: err}
	}
	return &pluginsdk.ConfigError{Path: strings.TrimSuffix(prefix+"."+fault.Path, "."), Err: fault.Err}
}

// named is a processor's name in the span account.
type named string

// Name is the name under which the host counts dropped spans.
func (n named) Name() string { return string(n) }

// checkName adds an error for a name that the delivery accounting cannot hold.
// An empty name is valid: it means the kind's own name.
func (f *faults) checkName(name string) {
	const longest = 64
	if len(name) > longest || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == ',' || r == '=' || r >= 0x7f
	}) {
		f.add("name", "%q: want at most %d letters, digits and signs of ASCII, without spaces, commas and \"=\"", name, longest)
	}
}

// nameOr is a processor's name in the span account: the one given, or its kind.
func nameOr(given, kind string) named {
	if given == "" {
		return named(kind)
	}
	return named(given)
}
