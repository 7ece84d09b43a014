// Package progress reports the progress of a long command: its current step, the number of
// finished steps, and the remaining time.
//
//  1. Start begins a report on a writer. Every five seconds, it writes a line. If the writer
//     is a terminal, the report has a single line, which it updates twice a second from the
//     second second on.
//  2. At sets the current step and the number of finished steps.
//  3. Write passes other output of the command on, such as its log.
//  4. End ends the report, and removes its line from a terminal.
//
// The estimate of the remaining time assumes that all steps take equally long. The report has
// no bars and no colours. The package has only this file.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	linePause     = 5 * time.Second        // time between two lines, if the writer is no terminal
	terminalPause = 500 * time.Millisecond // time between two updates of the line in a terminal
	terminalFirst = 2                      // number of updates that are skipped, so that a short command shows no line
)

// Report is the progress of one run. Its methods are safe for concurrent use.
type Report struct {
	w        io.Writer
	terminal bool           // w is a terminal
	what     string         // the beginning of each line
	limit    time.Duration  // longest duration of the run; zero if it is not known
	began    time.Time      // time of Start
	ended    chan struct{}  // closed by End
	reported sync.WaitGroup // counts the goroutine that writes the lines

	mu          sync.Mutex
	step        string // the current step; empty if it has no name
	done, total int    // numbers of finished steps and of all steps; a total of zero is not known
	shown       bool   // the terminal shows the line of the report
}

// Start begins a report on w about a run. Each line begins with the text what. limit is the
// longest duration of the run, or zero if it is not known. The caller must call End.
func Start(w io.Writer, what string, limit time.Duration) *Report {
	r := &Report{w: w, terminal: IsTerminal(w), what: what, limit: limit, began: time.Now(), ended: make(chan struct{})}
	r.reported.Go(r.run) // ends with End
	return r
}

// At sets the current step, which may be empty, the number of finished steps, done, and the
// number of all steps, total. If total is not known, it must be zero.
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

// run writes the lines of the report until End is called.
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

// show writes a line with the progress after the time passed. It ignores errors, because the
// command works without the report.
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

// Write writes other output of the command, such as its log. In a terminal, it first removes
// the line of the report.
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

// textLocked returns the line about the progress after the time passed, without a line break.
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
