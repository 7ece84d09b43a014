package servicefile

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// form is a type of values: how they are written in YAML, and how the variable
// has them.
type form struct {
	// says is what may stand there, for messages and documents.
	says string
	// read gives the variable's value; ok is false for another type. The node is
	// no alias and not null.
	read func(node *yaml.Node) (value string, ok bool)
}

var (
	text     = form{says: "a text", read: readText}
	boolean  = form{says: "true or false", read: readBoolean}
	number   = form{says: "a number, without quotes", read: readNumber}
	integer  = form{says: "a whole number, without quotes", read: readInteger}
	duration = form{says: "a duration with its unit, such as 200ms, 10s or 1m30s", read: readText}
	size     = form{says: "a number of bytes, or a text such as 512KiB or 32MiB", read: readSize}
	// As in Ray's files, "_s" are seconds without a unit.
	seconds       = form{says: "a number of seconds above zero, without a unit", read: readSeconds(false)}
	secondsOrNone = form{says: "a number of seconds, zero or more, without a unit", read: readSeconds(true)}
	level         = form{says: "one of DEBUG, INFO, WARNING, ERROR, NONE", read: readLevel}
	encoding      = form{says: "one of TEXT, JSON", read: readEncoding}
	// document is anything; it is looked at by itself.
	document = form{says: "any YAML", read: func(*yaml.Node) (string, bool) { return "", true }}
)

// list is a form of one text, or several, with sep between them in the variable.
func list(sep string) form {
	return form{says: "a text, or a list of texts", read: func(node *yaml.Node) (string, bool) {
		if node.Kind != yaml.SequenceNode {
			return readText(node)
		}
		items := make([]string, len(node.Content))
		for i, item := range node.Content {
			var ok bool
			if items[i], ok = readText(item); !ok {
				return "", false
			}
		}
		return strings.Join(items, sep), true
	}}
}

func readText(node *yaml.Node) (string, bool) { return tagged("!!str")(node) }

// tagged reads scalars of one type as they are written.
func tagged(tag string) func(*yaml.Node) (string, bool) {
	return func(node *yaml.Node) (string, bool) {
		return strings.TrimSpace(node.Value), node.Kind == yaml.ScalarNode && node.ShortTag() == tag
	}
}

func readBoolean(node *yaml.Node) (string, bool) {
	value, ok := tagged("!!bool")(node)
	return strings.ToLower(value), ok // Python writes True
}

func readInteger(node *yaml.Node) (string, bool) {
	var n int64 // YAML writes them in several ways
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!int" || node.Decode(&n) != nil {
		return "", false
	}
	return strconv.FormatInt(n, 10), true
}

func readNumber(node *yaml.Node) (string, bool) {
	n, ok := float(node)
	return strconv.FormatFloat(n, 'g', -1, 64), ok
}

func float(node *yaml.Node) (n float64, ok bool) {
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!int" && node.ShortTag() != "!!float" {
		return 0, false
	}
	err := node.Decode(&n)
	return n, err == nil
}

func readSize(node *yaml.Node) (string, bool) {
	if value, ok := readInteger(node); ok {
		return value, true
	}
	return readText(node)
}

// mostSeconds is about thirty years, and fits a time.Duration.
const mostSeconds = 1e9

func readSeconds(zero bool) func(*yaml.Node) (string, bool) {
	return func(node *yaml.Node) (string, bool) {
		n, ok := float(node)
		// The comparisons are false for NaN too. What is above zero and below a
		// nanosecond would be zero as a duration.
		if !ok || !(n >= 1e-9 && n <= mostSeconds) && !(zero && n == 0) {
			return "", false
		}
		if n == math.Trunc(n) {
			return strconv.FormatFloat(n, 'f', 0, 64) + "s", true
		}
		return strings.TrimRight(strconv.FormatFloat(n, 'f', 9, 64), "0") + "s", true
	}
}

// readEncoding reads Ray's words for the form of a log.
func readEncoding(node *yaml.Node) (string, bool) {
	value, ok := readText(node)
	value = strings.ToLower(value)
	return value, ok && (value == "text" || value == "json")
}

// readLevel reads Python's words for levels, as Ray has them.
func readLevel(node *yaml.Node) (string, bool) {
	value, ok := readText(node)
	switch value = strings.ToLower(value); value {
	case "debug", "info", "error", "none":
		return value, ok
	case "warn", "warning":
		return "warn", ok
	case "critical":
		return "error", ok
	}
	return "", false
}

// seen describes what stands at a node, for a message.
func seen(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	const most = 60
	value := node.Value
	if runes := []rune(value); len(runes) > most {
		value = string(runes[:most]) + "…"
	}
	switch node.ShortTag() {
	case "!!str":
		return fmt.Sprintf("the text %q", value)
	case "!!int", "!!float":
		return "the number " + value
	case "!!bool":
		return value
	}
	return fmt.Sprintf("%q", value)
}
