package launch

import (
	"bytes"
	"time"
)

// maxKeptStack is the length of the kept beginning of a stack, in bytes. In a dump of ten
// thousand goroutines, the first goroutines are the most useful.
const maxKeptStack = 64 << 10

// stackAge is the time during which later lines belong to a stack. A process that prints
// for longer did not die at that point. It has logged a traceback, and the next stack
// replaces that traceback.
const stackAge = 10 * time.Second

// stackStarts are the beginnings of the first lines of stacks. cause is set if the line
// describes the fault. In some languages the cause comes after the first line of the stack.
var stackStarts = []struct {
	prefix string
	cause  bool
}{
	// Go, and C code in a Go program.
	{"panic: ", true}, {"fatal error: ", true}, {"SIGQUIT: quit", true}, {"SIGABRT: abort", true},
	{"SIGSEGV: ", true}, {"SIGBUS: ", true}, {"SIGFPE: ", true}, {"SIGILL: ", true}, {"SIGTRAP: ", true},
	{"runtime: ", false}, {"unexpected fault address ", false}, {"[signal SIG", false}, {"signal: ", false},
	// Python.
	{"Traceback (most recent call last)", false}, {"Fatal Python error: ", true},
	// Rust, Java, .NET, C++ and C.
	{"thread 'main' panicked at", true}, {"Exception in thread ", true}, {"Unhandled exception", true},
	{"terminate called ", true}, {"*** stack smashing ", true}, {"double free or corruption", true},
}

// stackFirst is set for the first bytes of stackStarts. Most lines begin with another
// byte and need no further check.
var stackFirst = func() (first [256]bool) {
	for _, s := range stackStarts {
		first[s.prefix[0]] = true
	}
	return first
}()

// startsStack reports whether a line, which must not be empty, begins a stack, and
// whether the line describes the fault.
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

type stack struct {
	of     *stream // the stream that printed it; nil if there is no stack
	begun  time.Time
	caused bool   // a line that describes the fault was found
	head   []byte // at most maxKeptStack and the margin
}

// open reports whether a line of s at the time now belongs to the stack.
func (k *stack) open(s *stream, now time.Time) bool {
	return k.of == s && now.Sub(k.begun) <= stackAge
}

// dying reports whether lines of s at the time now are part of a stack that has a cause.
func (k *stack) dying(s *stream, now time.Time) bool { return k.caused && k.open(s, now) }

// line adds a line of s, which may be empty. It reports whether the line is the first
// cause of a stack.
func (k *stack) line(s *stream, line []byte, now time.Time, limit int) (cause bool) {
	if len(line) > 0 {
		starts, isCause := startsStack(line)
		if starts && !k.open(s, now) {
			*k = stack{of: s, begun: now, head: k.head[:0]}
		}
		if cause = starts && isCause && !k.caused; cause {
			k.caused = true
		}
	}
	if k.of == s && len(k.head) < limit {
		k.head = append(k.head, line[:min(len(line), limit-len(k.head))]...)
		k.head = append(k.head, '\n')
	}
	return cause
}
