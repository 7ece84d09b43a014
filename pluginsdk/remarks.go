package pluginsdk

import (
	"errors"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// remarks collects the diagnostics of a configuration. It is safe for concurrent use, because
// constructors may call Setup.Warn from other goroutines, even after they have returned.
type remarks struct {
	mu     sync.Mutex
	closed bool
	all    []*pluginv1.Diagnostic
}

// add adds a diagnostic. It does nothing after close, or if the same diagnostic was added
// before, because two constructors may find the same error.
func (r *remarks) add(severity pluginv1.Severity, path, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	remark := &pluginv1.Diagnostic{Severity: severity, Path: wire.Text(path), Text: wire.Text(text)}
	if r.closed || slices.ContainsFunc(r.all, func(d *pluginv1.Diagnostic) bool { return proto.Equal(d, remark) }) {
		return
	}
	r.all = append(r.all, remark)
}

// fail adds a diagnostic of severity ERROR for err, or for each error that err joins.
// prefix names the processor in the Spec ("processor 2: "). It is not used for a ConfigError,
// which already names the operator's setting.
func (r *remarks) fail(prefix string, err error) {
	if list := members(err); list != nil {
		for _, one := range list {
			r.fail(prefix, one)
		}
		return
	}
	path, text := "", err.Error()
	if named, ok := errors.AsType[*ConfigError](err); ok {
		path = named.Path
		if text == named.Error() { // otherwise err wraps named in a longer text, which is kept
			text, prefix = named.Err.Error(), ""
		}
	}
	r.add(pluginv1.Severity_SEVERITY_ERROR, path, prefix+text)
}

// members returns the errors that errors.Join joined. It returns nil for any other error,
// even if that wraps several errors in a text of its own.
func members(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	list := several.Unwrap()
	if joined := errors.Join(list...); joined == nil || joined.Error() != err.Error() {
		return nil
	}
	return list
}

// failed reports whether a diagnostic of severity ERROR was added.
func (r *remarks) failed() bool {
	return slices.ContainsFunc(r.list(), isFatal)
}

func isFatal(d *pluginv1.Diagnostic) bool {
	return d.GetSeverity() == pluginv1.Severity_SEVERITY_ERROR
}

func (r *remarks) list() []*pluginv1.Diagnostic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.all
}

func (r *remarks) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}
