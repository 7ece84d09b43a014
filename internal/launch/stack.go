package launch

import (
	"bytes"
	"time"
)

// maxKeptStack is the number of bytes that are kept from the beginning of a stack. In a dump
// of ten thousand goroutines, the first goroutines are the most useful.
const maxKeptStack = 64 << 10

// stackAge is the time after the first line of a stack in which further lines belong to the
// stack. A process that prints for longer did not die of this fault: it has only logged the
// stack. So the next stack replaces it.
const stackAge = 10 * time.Second

// stackStarts are the beginnings of lines that begin a stack. cause is set if the line also
// describes the fault. In some languages, another line of the stack describes the fault.
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

// stack is the stack that the plugin has printed last.
type stack struct {
	of     *stream   // the stream with the stack; nil if there is no stack
	begun  time.Time // time of the first line
	caused bool      // a line that describes the fault was found
	head   []byte    // beginning of the stack, at most maxStack() bytes
}

// open reports whether a line that stream s prints at the time now belongs to the stack.
func (k *stack) open(s *stream, now time.Time) bool {
	return k.of == s && now.Sub(k.begun) <= stackAge
}

// dying reports whether a line that stream s prints at the time now belongs to a stack with a
// line that describes the fault.
func (k *stack) dying(s *stream, now time.Time) bool { return k.caused && k.open(s, now) }

// line adds a line of stream s, if it belongs to the stack or begins a new stack. The line may
// be empty. The stack is cut at limit bytes. cause reports whether the line is the first line
// of the stack that describes the fault.
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
