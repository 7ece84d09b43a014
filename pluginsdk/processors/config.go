package processors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// faults collects all errors in a config, so that Validate can return them at once.
type faults []error

// add adds an error about one field. path is the field's path in the config:
// "actions[0].key".
func (f *faults) add(path, format string, args ...any) {
	*f = append(*f, &pluginsdk.ConfigError{Path: path, Err: fmt.Errorf(format, args...)})
}

func (f faults) err() error { return errors.Join(f...) }

// within puts prefix before the path of each ConfigError that err joins. It makes other
// errors a ConfigError with prefix as the path.
func within(prefix string, err error) error {
	var all faults
	for _, one := range leaves(err) {
		if fault, ok := errors.AsType[*pluginsdk.ConfigError](one); ok {
			all = append(all, &pluginsdk.ConfigError{Path: strings.TrimSuffix(prefix+"."+fault.Path, "."), Err: fault.Err})
		} else if one != nil {
			all = append(all, &pluginsdk.ConfigError{Path: prefix, Err: one})
		}
	}
	return all.err()
}

// leaves returns the errors that err joins, also the errors inside of joined errors.
func leaves(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	for _, one := range joined.Unwrap() {
		all = append(all, leaves(one)...)
	}
	return all
}

type processor struct {
	name    string
	process func(*pluginsdk.Batch)
}

var (
	_ pluginsdk.Processor = processor{}
	_ pluginsdk.Named     = processor{}
)

// Name returns the name under which the host counts the spans that this processor drops.
func (p processor) Name() string { return p.name }

// Process edits a batch. It never returns an error.
func (p processor) Process(_ context.Context, b *pluginsdk.Batch) error {
	p.process(b)
	return nil
}

// constructor returns the constructor of a processor. The processor's name is name, or
// kind if name is empty. prepare validates the config, and returns the function that
// edits a batch.
func constructor(kind, name string, prepare func(pluginsdk.Setup) (func(*pluginsdk.Batch), error)) pluginsdk.NewProcessor {
	return func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
		process, err := prepare(s)
		if err != nil {
			return nil, within(kind, err)
		}
		return processor{cmp.Or(name, kind), process}, nil
	}
}

// checkName adds an error for a name under which a host cannot count dropped spans. An
// empty name is valid, because it means the default.
func (f *faults) checkName(name string) {
	const longest = 64
	if len(name) > longest || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r == ',' || r == '=' || r >= 0x7f
	}) {
		f.add("name", "%q: want at most %d letters, digits and signs of ASCII, without spaces, commas and \"=\"", name, longest)
	}
}
