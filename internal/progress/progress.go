// Package progress reports what a long command does, how far it is, and how long it still
// takes.
//
//  1. Start begins a report on a writer. After five seconds, and every five seconds from
//     then on, the writer gets a line. A terminal has one line that changes twice a
//     second, from the first second on.
//  2. At sets the step in progress, and the number of finished steps.
//  3. Write passes other lines of the command on, such as its log.
//  4. End ends the report, and clears the line of a terminal.
//
// The estimate of the remaining time assumes that all steps take equally long. The package
// has no bars and no colours. Open this file first: there is no other.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Pauses between two lines, and between two updates of the line in a terminal.
const (
	linePause     = 5 * time.Second
	terminalPause = 500 * time.Millisecond
	terminalFirst = 2 // number of ticks before the first update
)

// Report is the progress of one run. Its methods are safe for concurrent use.
type Report struct {
	w        io.Writer
	terminal bool
	what     string
	limit    time.Duration
	began    time.Time
	ended    chan struct{}
	reported sync.WaitGroup

	mu          sync.Mutex
	step        string
	done, total int
	shown       bool // the line is on the terminal's screen
}

// Start begins a report about a run. Each line begins with the text what. limit is the
// longest duration of the run, or zero. The caller must call End.
func Start(w io.Writer, what string, limit time.Duration) *Report {
	r := &Report{w: w, terminal: IsTerminal(w), what: what, limit: limit, began: time.Now(), ended: make(chan struct{})}
	r.reported.Go(r.run) // ends with End
	return r
}

// At sets the step in progress, which may be empty, and the number of finished steps. A
// total of zero means that it is not known.
func (r *Report) At(step string, done, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.step, r.done, r.total = step, done, total
}

// End ends the report. It must be called once.
func (r *Report) End() {
	close(r.ended)
	r.reported.Wait()
}

func (r *Report) run() {
	pause := linePause
	if r.terminal {
		pause = terminalPause
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for ticks := 0; ; ticks++ {
		select {
		case <-tick.C:
			if !r.terminal || ticks >= terminalFirst {
				r.show(time.Since(r.began))
			}
		case <-r.ended:
			_, _ = r.Write(nil)
			return
		}
	}
}

// clearLine moves to the beginning of the terminal's line and clears it.
const clearLine = "\r\x1b[K"

// show writes the state. It ignores errors, because the command works without the report.
func (r *Report) show(passed time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := r.textLocked(passed)
	if r.terminal {
		_, _ = io.WriteString(r.w, clearLine+text)
		r.shown = true
		return
	}
	_, _ = io.WriteString(r.w, text+"\n")
}

// Write writes other lines of the command, such as its log, in place of the report's line
// in a terminal.
func (r *Report) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shown {
		r.shown = false
		if _, err := io.WriteString(r.w, clearLine); err != nil {
			return 0, err
		}
	}
	return r.w.Write(p)
}

// textLocked returns the state as one line without a line break.
func (r *Report) textLocked(passed time.Duration) string {
	var parts []string
	if r.total > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d", r.done, r.total))
	}
	parts = append(parts, passed.Round(time.Second).String())
	switch {
	case r.limit > 0:
		parts[len(parts)-1] += " of at most " + r.limit.String()
	case r.done > 0 && r.total > r.done:
		left := passed * time.Duration(r.total-r.done) / time.Duration(r.done)
		parts = append(parts, "about "+max(time.Second, left.Round(time.Second)).String()+" left")
	}
	text := r.what + ": "
	if r.step != "" {
		text += r.step + ": "
	}
	return text + strings.Join(parts, ", ")
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
