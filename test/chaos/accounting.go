package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// accounting is the delivery accounting in hello's last log line.
type accounting struct {
	spans   uint64
	refused map[string]uint64
	// plugins holds the accounting of each plugin by name.
	plugins map[string]ledger
}

// ledger counts the spans of an exporter by result.
type ledger struct {
	delivered                   uint64
	rejected, filtered, dropped map[string]uint64
}

var (
	lastLine = regexp.MustCompile(`(?m)^.* msg=(?:stopped|"stopped; spans were lost") (.*)$`)
	// A field in slog's text format: NAME=VALUE, quoted if it has spaces.
	logField = regexp.MustCompile(`([^\s=]+)=("(?:[^"\\]|\\.)*"|\S*)`)
)

// readAccounting finds and parses the last line of a log.
func readAccounting(log string) (accounting, error) {
	b := accounting{plugins: map[string]ledger{}}
	match := lastLine.FindStringSubmatch(log)
	if match == nil {
		return b, fmt.Errorf("hello's log has no line with the delivery accounting")
	}
	for _, field := range logField.FindAllStringSubmatch(match[1], -1) {
		key, value := field[1], field[2]
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		if err := b.set(key, value); err != nil {
			return b, fmt.Errorf("hello's last line: %s: %w", key, err)
		}
	}
	return b, nil
}

// set stores a field. Fields without counts are ignored.
func (b *accounting) set(key, value string) (err error) {
	switch key {
	case "spans":
		b.spans, err = strconv.ParseUint(value, 10, 64)
		return err
	case "refused":
		b.refused, err = parseCounts(value)
		return err
	}
	dot := strings.LastIndexByte(key, '.')
	if dot < 0 {
		return nil
	}
	l := b.plugins[key[:dot]]
	switch key[dot+1:] {
	case "delivered":
		l.delivered, err = strconv.ParseUint(value, 10, 64)
	case "rejected":
		l.rejected, err = parseCounts(value)
	case "filtered":
		l.filtered, err = parseCounts(value)
	case "dropped":
		l.dropped, err = parseCounts(value)
	}
	b.plugins[key[:dot]] = l
	return err
}

// parseCounts parses a map as printed by fmt: map[a:1 b:2].
func parseCounts(text string) (map[string]uint64, error) {
	inner, ok := strings.CutPrefix(text, "map[")
	inner, closed := strings.CutSuffix(inner, "]")
	if !ok || !closed {
		return nil, fmt.Errorf("%q is not a map", text)
	}
	counts := map[string]uint64{}
	for _, pair := range strings.Fields(inner) {
		name, number, _ := strings.Cut(pair, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil, err
		}
		counts[name] = n
	}
	return counts, nil
}
