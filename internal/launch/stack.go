package launch

import (
	"bytes"
	"time"
)

// keptStack is how much of the beginning of a stack is kept, bytes: of a dump
// of ten thousand goroutines the first say most.
const keptStack = 64 << 10

// stackAge is how long lines belong to a stack. A process that goes on printing
// for longer did not die of it: it has logged a traceback, and the next
// beginning takes its place.
const stackAge = 10 * time.Second

// stackStarts are how the last words of a program begin, at the beginning of a
// line. A cause says in one line what happened; after the others that comes
// later, or last of all.
var stackStarts = []struct {
	prefix string
	cause  bool
}{
	// Go, and C code in it.
	{"panic: ", true}, {"fatal error: ", true}, {"SIGQUIT: quit", true}, {"SIGABRT: abort", true},
	{"SIGSEGV: ", true}, {"SIGBUS: ", true}, {"SIGFPE: ", true}, {"SIGILL: ", true}, {"SIGTRAP: ", true},
	{"runtime: ", false}, {"unexpected fault address ", false}, {"[signal SIG", false}, {"signal: ", false},
	// Python.
	{"Traceback (most recent call last)", false}, {"Fatal Python error: ", true},
	// Rust, Java, .NET, C++, C.
	{"thread 'main' panicked at", true}, {"Exception in thread ", true}, {"Unhandled exception", true},
	{"terminate called ", true}, {"*** stack smashing ", true}, {"double free or corruption", true},
}

// stackFirst tells which bytes stackStarts begin with: that of most lines is
// none of them, and nothing else is looked at.
var stackFirst = func() (first [256]bool) {
	for _, s := range stackStarts {
		first[s.prefix[0]] = true
	}
	return first
}()

// startsStack tells whether a line, which is not empty, begins a stack, and
// whether it is a cause.
func startsStack(line []byte) (starts, cause bool) {
	if !stackFirst[line[0]] {
		return false, false
	}
	for _, s := range stackStarts {
		if bytes.HasPrefix(line, []byte(s.prefix)) {
			return true, s.cause
		}
	}
	return false, false
}

// stack is the last that was printed.
type stack struct {
	of     *stream // whose lines are in it; nil: none was begun
	begun  time.Time
	caused bool   // a cause is in it
	head   []byte // at most keptStack and the margin
}

// open tells whether a line of s, now, belongs to it.
func (k *stack) open(s *stream, now time.Time) bool {
	return k.of == s && now.Sub(k.begun) <= stackAge
}

// dying tells whether what s prints now are the words of a process that says
// why it ends.
func (k *stack) dying(s *stream, now time.Time) bool { return k.caused && k.open(s, now) }

// line takes a line of s, which may be empty. It tells whether it is the cause
// of a stack, the first.
func (k *stack) line(s *stream, line []byte, now time.Time, most int) (cause bool) {
	if len(line) > 0 {
		starts, isCause := startsStack(line)
		if starts && !k.open(s, now) {
			*k = stack{of: s, begun: now, head: k.head[:0]}
		}
		if cause = starts && isCause && !k.caused; cause {
			k.caused = true
		}
	}
	if k.of == s && len(k.head) < most {
		k.head = append(k.head, line[:min(len(line), most-len(k.head))]...)
		k.head = append(k.head, '\n')
	}
	return cause
}
