package settings

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Reader reads typed variables and collects their faults. It ignores blanks around a
// value, as the service file does. An empty variable counts as unset. The result of a
// variable that is unset or has a fault is zero. A Reader is not safe for concurrent use.
type Reader struct {
	getenv func(string) string
	errs   []error
}

// NewReader returns a Reader of the variables that getenv returns.
func NewReader(getenv func(string) string) Reader { return Reader{getenv: getenv} }

// Err joins the faults, or returns nil if there are none.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Text returns the value of a variable, without blanks around it.
func (r *Reader) Text(name string) string { return strings.TrimSpace(r.getenv(name)) }

// Fail adds a fault for a variable. Its message has the value seen and describes the
// allowed values.
func (r *Reader) Fail(name, seen, allowed string) {
	r.errs = append(r.errs, fmt.Errorf("%s=%q: want %s", name, seen, allowed))
}

// Add adds a fault, unless err is nil.
func (r *Reader) Add(err error) {
	if err != nil {
		r.errs = append(r.errs, err)
	}
}

// Bool reads a variable as true or false.
func (r *Reader) Bool(name string) bool {
	text := r.Text(name)
	if text == "" {
		return false
	}
	is, err := strconv.ParseBool(strings.ToLower(text))
	if err != nil {
		r.Fail(name, text, "true or false")
	}
	return is
}

// Choice reads a variable that must be one of two words, in upper or lower case. It returns
// true for the word second.
func (r *Reader) Choice(name, first, second string) bool {
	switch text := r.Text(name); {
	case strings.EqualFold(text, second):
		return true
	case text != "" && !strings.EqualFold(text, first):
		r.Fail(name, text, first+" or "+second)
	}
	return false
}

// Size reads a variable as a number of bytes; see ParseSize.
func (r *Reader) Size(name string) int64 {
	text := r.Text(name)
	if text == "" {
		return 0
	}
	n, err := ParseSize(text)
	if err != nil {
		r.Fail(name, text, SizeRange+", such as 1048576, 512KiB or 32MiB")
	}
	return n
}

// Duration reads a variable as a duration above zero.
func (r *Reader) Duration(name string) time.Duration {
	text := r.Text(name)
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		r.Fail(name, text, "a duration above zero, such as 200ms or 10s")
		return 0
	}
	return d
}

// Count reads a variable as a whole number from 1 to math.MaxInt32.
func (r *Reader) Count(name string) int {
	text := r.Text(name)
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > math.MaxInt32 {
		r.Fail(name, text, fmt.Sprintf("a whole number from 1 to %d", math.MaxInt32))
		return 0
	}
	return n
}

// SizeRange describes the sizes that ParseSize accepts, for error messages.
const SizeRange = "a number of bytes from 1 to 1024GiB"

const mostBytes = 1 << 40

// ParseSize parses a size in the form of "1048576", "512KiB", "32MiB" or "1GiB". Blanks
// around the text, and before the unit, are ignored.
func ParseSize(text string) (int64, error) {
	text = strings.TrimSpace(text)
	number, shift := text, 0
	for suffix, bits := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			number, shift = rest, bits
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil {
		return 0, err
	}
	if n <= 0 || n > mostBytes>>shift {
		return 0, strconv.ErrRange
	}
	return n << shift, nil
}
