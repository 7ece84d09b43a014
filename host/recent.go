package host

import "github.com/servetrace/servetrace/host/internal/pipeline"

// Recent holds copies of the last batches of a [Host], to show them to operators. Safe for
// concurrent use.
type Recent struct{ kept *pipeline.Recent }

// NewRecent returns a Recent for [WithRecent]. bytes bounds the memory of the copies,
// which is in addition to Config.QueueBytes. With 0, no copies are kept. Per second, at
// most an eighth of bytes is copied, plus one batch, so the cost does not grow with the
// number of spans.
func NewRecent(bytes int) *Recent { return &Recent{pipeline.NewRecent(bytes)} }

// WithRecent makes the Host keep copies of its last batches in r. Default: it keeps none.
func WithRecent(r *Recent) Option {
	return optionFunc(func(o *options) { o.recent = r.kept })
}

// Batches returns the copies, oldest first: encoded ExportTraceServiceRequests of OTLP,
// as they left the processors that all exporters share. The caller must not change them.
func (r *Recent) Batches() [][]byte { return r.kept.Batches() }
