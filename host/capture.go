package host

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/host/internal/pipeline"
)

// Errors of OpenCapture.
var (
	ErrNoPlugin     = errors.New("there is no such plugin")
	ErrManyPlugins  = errors.New("the list has several plugins")
	ErrManyCaptures = errors.New("the plugin has four captures already")
)

// Capture collects copies of the batches that a plugin gets, for tools that record
// spans. Its methods must not be called concurrently.
type Capture struct{ tap *pipeline.Tap }

// CapturedBatch is an encoded ExportTraceServiceRequest, and the number of its spans.
type CapturedBatch struct {
	Data  []byte
	Spans int
}

// Next waits until there is a batch, and returns the batches since the last call. It
// returns none when ctx has ended. A late call delays no span: at most 4 MiB of copies
// wait for the call. Further batches are not copied, and Close counts their spans.
func (c *Capture) Next(ctx context.Context) []CapturedBatch {
	var list []CapturedBatch
	for _, b := range c.tap.Next(ctx) {
		list = append(list, CapturedBatch(b))
	}
	return list
}

// Close ends the capture. It returns the number of spans that the plugin got during the
// capture and that Next has not returned.
func (c *Capture) Close() (missed uint64) { return c.tap.Close() }

// OpenCapture copies each batch that a plugin of h's list gets from now on. The batches
// of an exporter are the results of its processors. An empty name means the only plugin.
// The caller must call Close. The error wraps [ErrNoPlugin], [ErrManyPlugins] or
// [ErrManyCaptures]. Safe for concurrent use.
func OpenCapture(h *Host, plugin string) (*Capture, error) {
	list := h.listed()
	var names []string
	for _, x := range list {
		names = append(names, x.Entry.Name)
	}
	at := slices.Index(names, plugin)
	switch {
	case plugin == "" && len(list) == 1:
		at = 0
	case plugin == "" && len(list) > 1:
		return nil, fmt.Errorf("%w: name one of %s", ErrManyPlugins, strings.Join(names, ", "))
	case at < 0:
		return nil, fmt.Errorf("%w: %q; the plugins are %s", ErrNoPlugin, plugin, strings.Join(names, ", "))
	}
	if tap := pipeline.NewTap(list[at].Queue); tap != nil {
		return &Capture{tap}, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrManyCaptures, names[at])
}
