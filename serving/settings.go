package serving

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"
)

// faults collects the errors of settings, so that all are reported at once.
type faults []error

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Errorf(format, args...)) }

// addr checks that an address is host:port. An empty address is valid, because it means the
// default.
func (f *faults) addr(field, addr string) {
	if addr == "" {
		return
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		f.add("%s %q: want host:port: %w", field, addr, err)
	} else if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		f.add("%s %q: want a port from 0 to 65535", field, addr)
	}
}

// duration checks that a duration is not negative.
func (f *faults) duration(field string, d time.Duration) {
	if d < 0 {
		f.add("%s %v: want zero or more", field, d)
	}
}

// number checks that a number is from least to most. Zero is valid, because it means the
// default.
func (f *faults) number(field string, n, least, most int) {
	if n != 0 && (n < least || n > most) {
		f.add("%s %d: want %d to %d", field, n, least, most)
	}
}

// envReader reads typed environment variables and collects their faults. The result of a
// variable that is unset or has a fault is a default.
type envReader struct {
	getenv func(string) string // returns the value of a variable without blanks around it
	faults faults
}

// duration reads a duration of zero or more. Its default is zero.
func (e *envReader) duration(name string) time.Duration {
	return e.durationFrom(0, "of zero or more", name)
}

// positive reads a duration above zero. It returns 0 if the variable is unset.
func (e *envReader) positive(name string) time.Duration { return e.durationFrom(1, "above zero", name) }

// durationFrom reads a duration of at least the given least value, which words name in an
// error. It returns 0 if the variable is unset or wrong.
func (e *envReader) durationFrom(least time.Duration, words, name string) time.Duration {
	text := e.getenv(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least {
		e.faults.add("%s=%q: want a duration %s, such as 30s or 1m30s", name, text, words)
		return 0
	}
	return d
}

// limit reads a time limit. It returns 0 if the variable is unset. It returns -1 if the
// value is zero, which means no limit.
func (e *envReader) limit(name string) time.Duration {
	if d := e.duration(name); d != 0 || e.getenv(name) == "" {
		return d
	}
	return -1
}

// addr reads an address from the variables of its host and its port. It returns "" if
// neither variable is set.
func (e *envReader) addr(hostName, defaultHost, portName string, defaultPort int) string {
	host := e.getenv(hostName)
	if host == "" && e.getenv(portName) == "" {
		return ""
	}
	port := e.integer(portName, defaultPort, 0, 65535)
	return net.JoinHostPort(cmp.Or(host, defaultHost), strconv.Itoa(port))
}

func (e *envReader) boolean(name string, unset bool) bool {
	switch text := e.getenv(name); text {
	case "true":
		return true
	case "false":
		return false
	case "":
	default:
		e.faults.add("%s=%q: want true or false", name, text)
	}
	return unset
}

func (e *envReader) integer(name string, unset, least, most int) int {
	text := e.getenv(name)
	if text == "" {
		return unset
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		e.faults.add("%s=%q: want a whole number from %d to %d", name, text, least, most)
		return unset
	}
	return n
}

// oneOf reads a number that must be one of the allowed numbers. Its default is 0.
func (e *envReader) oneOf(name string, allowed []int) int {
	text := e.getenv(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || !slices.Contains(allowed, n) {
		e.faults.add("%s=%q: want %s", name, text, eitherOf(allowed))
		return 0
	}
	return n
}

// list reads a comma-separated list. It skips empty items.
func (e *envReader) list(name string) (items []string) {
	for item := range strings.SplitSeq(e.getenv(name), ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
