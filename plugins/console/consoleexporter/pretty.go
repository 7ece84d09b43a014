package consoleexporter

import (
	"context"
	"fmt"

	"github.com/servetrace/servetrace/internal/waterfall"
	"github.com/servetrace/servetrace/pluginsdk"
)

// toTerminal returns an exporter that draws the traces of each batch in the order of
// their starts. Each trace is a single Write to Setup.Stdout.
func toTerminal(s pluginsdk.Setup) pluginsdk.ExportFunc {
	look := waterfall.LookOf(s.Getenv, s.Stdout, s.Context.Terminal, s.Context.TerminalColumns)
	var recent waterfall.Recent
	return func(ctx context.Context, batch *pluginsdk.Batch) error {
		spans, malformed := waterfall.Read(batch.Bytes())
		for _, g := range waterfall.ByTrace(spans) {
			if err := ctx.Err(); err != nil {
				return err
			}
			t := waterfall.LayOut(g.ID, g.Spans, recent.Find(g.ID), look)
			if _, err := s.Stdout.Write(waterfall.Draw(t, look)); err != nil {
				return fmt.Errorf("write trace: %w", err)
			}
			recent.Add(t)
		}
		if malformed != nil {
			return pluginsdk.Permanent(fmt.Errorf("malformed batch: %w", malformed))
		}
		return nil
	}
}
