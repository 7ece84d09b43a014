package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/servetrace/servetrace/bench/internal/sink"
	"github.com/servetrace/servetrace/bench/internal/spanpath"
)

// order is what the parent tells a child, moments what it answers: when things
// happened, and which processes its plugins are.
type order struct {
	Row  string         `json:"row"`
	Bin  string         `json:"bin"`
	Sink sink.Addresses `json:"sink"`
	// Stay: it stays, idle, until its standard input ends.
	Stay bool `json:"stay"`
}

type moments struct {
	Running   time.Time `json:"running"`
	Delivered time.Time `json:"delivered"`
	Plugins   []int     `json:"plugins"`
}

// childTime bounds what a child does but for staying.
const childTime = 15 * time.Second

// Child is a process that starts as a program with this row would, makes a
// span at once and delivers it.
func Child(ctx context.Context, stdin io.Reader, stdout io.Writer) (err error) {
	m := moments{Running: time.Now()}
	var o order
	from := json.NewDecoder(stdin)
	if err := from.Decode(&o); err != nil {
		return fmt.Errorf("order: %w", err)
	}
	bounded, cancel := context.WithTimeout(ctx, childTime)
	defer cancel()
	p, err := spanpath.Open(bounded, o.Row, o.Bin, o.Sink)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), childTime)
		defer cancel()
		err = errors.Join(err, p.Close(closing))
	}()
	p.Span()
	if err := p.Flush(bounded); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	m.Delivered = time.Now()
	if err := p.Ready(bounded); err != nil {
		return err
	}
	m.Plugins = p.Plugins()
	if err := json.NewEncoder(stdout).Encode(m); err != nil {
		return err
	}
	if o.Stay {
		_, _ = io.Copy(io.Discard, stdin)
	}
	return nil
}
