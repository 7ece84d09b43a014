package pluginsdk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"

	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/internal/wire"
)

// pipeline holds the processors and the exporter of this plugin, which the constructors of the
// Spec have returned. exporter is nil in a processor plugin. Package pipeline is in the host and
// has nothing to do with it.
type pipeline struct {
	log      *slog.Logger
	stages   []stage
	exporter Exporter
}

// run passes the batch to each processor and then to the exporter. It stops at the first
// error, or when no span is left. It returns the numbers of dropped spans as trailing
// metadata for the host, with an element for each processor.
func (p *pipeline) run(ctx context.Context, batch *Batch) (metadata.MD, error) {
	filtered := metadata.MD{}
	count := func(name string, spans int) {
		if spans > 0 {
			filtered.Append(wire.MetaFiltered, name+"="+strconv.Itoa(spans))
		}
	}
	for _, stage := range p.stages {
		before := batch.Len()
		err := guard(p.log, "processor "+strconv.Quote(stage.name), func() error { return stage.processor.Process(ctx, batch) })
		if asPartial(err) != nil {
			// A partial success would make the host forget a batch that no exporter has received.
			err = Permanent(fmt.Errorf("%w: only an exporter can deliver in part", err))
		}
		if err != nil {
			return nil, err
		}
		if err := batch.malformed(); err != nil {
			return nil, err
		}
		count(stage.name, before-batch.Len())
		if batch.Len() == 0 {
			return filtered, nil
		}
	}
	if p.exporter == nil {
		return filtered, nil
	}
	err := guard(p.log, "export", func() error { return p.exporter.Export(ctx, batch) })
	for name, spans := range batch.filtered {
		count(name, spans)
	}
	return filtered, err
}

// flush asks the exporter to deliver its buffer, if it is a [Flusher].
func (p *pipeline) flush(ctx context.Context) error {
	flusher, ok := p.exporter.(Flusher)
	if !ok {
		return nil
	}
	return guard(p.log, "flush exporter", func() error { return flusher.Flush(ctx) })
}

// close shuts down the exporter, and then the processors in reverse order.
func (p *pipeline) close(ctx context.Context) error {
	var faults []error
	if p.exporter != nil {
		faults = append(faults, guard(p.log, "shut down exporter", func() error { return p.exporter.Shutdown(ctx) }))
	}
	for i := len(p.stages) - 1; i >= 0; i-- {
		stage := p.stages[i]
		if stopper, ok := stage.processor.(Stopper); ok {
			faults = append(faults, guard(p.log, fmt.Sprintf("shut down processor %q", stage.name),
				func() error { return stopper.Shutdown(ctx) }))
		}
	}
	return errors.Join(faults...)
}

// guard calls f, which is code of the plugin's author, and puts the name of the operation
// before its error. If f panics, guard logs the stack and returns a final error, because
// a retry would probably panic again.
func guard(log *slog.Logger, operation string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			log.Error(operation+": panic", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
			err = &wire.Error{Code: wire.CodePanic, Final: true, Err: fmt.Errorf("%s: panic: %v", operation, r)}
		}
	}()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return nil
}
