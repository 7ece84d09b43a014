package servicefile

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// form describes the allowed values of a key, in YAML and in the variable.
type form struct {
	// says describes the allowed values in words, for messages and for the reference.
	says string
	// read returns the value of the node in the form of the variable. ok is false if the node
	// has a wrong type or value. The node is neither an alias nor null.
	read func(node *yaml.Node) (value string, ok bool)
	// schema describes the values for editors. It may accept more than read.
	schema schema
}

// typed returns the schema of a value that is null or has the named type.
func typed(name string) schema { return schema{"type": []string{name, "null"}} }

var (
	text     = form{says: "a text", read: readText, schema: typed("string")}
	boolean  = form{says: "true or false", read: readBoolean, schema: typed("boolean")}
	number   = form{says: "a number, without quotes", read: readNumber, schema: typed("number")}
	integer  = form{says: "a whole number, without quotes", read: readInteger, schema: typed("integer")}
	duration = form{says: "a duration with its unit, such as 200ms, 10s or 1m30s", read: readText, schema: typed("string")}
	size     = form{says: "a number of bytes, or a text such as 512KiB or 32MiB", read: readSize, schema: schema{"type": []string{"integer", "string", "null"}}}
	// These two forms are for keys that end in "_s". As in Ray's files, their values are numbers
	// of seconds without a unit.
	seconds       = form{says: "a number of seconds above zero, without a unit", read: readSeconds(false), schema: schema{"type": []string{"number", "null"}, "exclusiveMinimum": 0}}
	secondsOrNone = form{says: "a number of seconds, zero or more, without a unit", read: readSeconds(true), schema: schema{"type": []string{"number", "null"}, "minimum": 0}}
	// level accepts Python's names of log levels, too, because Ray's files have them.
	level = word("one of DEBUG, INFO, WARNING, ERROR, NONE", map[string]string{
		"debug": "debug", "info": "info", "warn": "warn", "warning": "warn", "error": "error", "critical": "error", "none": "none",
	})
	encoding = word("one of TEXT, JSON", map[string]string{"text": "text", "json": "json"})
	// importPath is a function in Python, which becomes an entry of the list of plugins.
	importPath = form{says: "a function in Python, such as exporter:default_tracing_exporter", read: readImportPath, schema: typed("string")}
	// document is for keys with any value. It has no function read, because the reader handles
	// these keys by their paths.
	document = form{says: "any YAML"}
)

// secret is a text that must not occur in messages.
var secret = form{says: "a text", read: func(node *yaml.Node) (string, bool) {
	return strings.TrimSpace(node.Value), node.Kind == yaml.ScalarNode
}, schema: schema{"type": []string{"string", "number", "boolean", "null"}}}

// count returns the form of a whole number that is at least the given number.
func count(least int) form {
	return form{says: fmt.Sprintf("a whole number, %d or more, without quotes", least), read: func(node *yaml.Node) (string, bool) {
		value, ok := readInteger(node)
		n, err := strconv.ParseInt(value, 10, 32)
		return value, ok && err == nil && n >= int64(least)
	}, schema: schema{"type": []string{"integer", "null"}, "minimum": least}}
}

// list returns the form of one text or a list of texts. In the variable, the texts are joined
// with sep.
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
	}, schema: schema{"type": []string{"string", "array", "null"}, "items": schema{"type": "string"}}}
}

// targets is the form of the targets of remote deployments.
var targets = form{
	says: `a list of texts, such as ["Model=dns:///model:9100"], or one text`, read: list(",").read, schema: list(",").schema,
}

// word returns the form of a single word, in any case. words has the allowed words in lower case,
// each with the value of the variable.
func word(says string, words map[string]string) form {
	return form{says: says, read: func(node *yaml.Node) (string, bool) {
		text, ok := readText(node)
		value, known := words[strings.ToLower(text)]
		return value, ok && known
	}, schema: anyCase(words)}
}

// anyCase returns the schema of words in upper and in lower case.
func anyCase(words map[string]string) schema {
	all := []any{nil}
	for _, word := range slices.Sorted(maps.Keys(words)) {
		all = append(all, word, strings.ToUpper(word))
	}
	return schema{"enum": all}
}

func readText(node *yaml.Node) (string, bool) {
	return strings.TrimSpace(node.Value), node.Kind == yaml.ScalarNode && node.ShortTag() == "!!str"
}

// isImportPath matches MODULE:FUNCTION. A dot may replace the colon.
var isImportPath = regexp.MustCompile(`^\w+(\.\w+)*[:.]\w+$`)

func readImportPath(node *yaml.Node) (string, bool) {
	path, ok := readText(node)
	if path == "" { // the default in Ray's files, which means no function
		return "", ok
	}
	return "python:" + path, ok && isImportPath.MatchString(path)
}

func readBoolean(node *yaml.Node) (string, bool) {
	return strings.ToLower(node.Value), node.Kind == yaml.ScalarNode && node.ShortTag() == "!!bool" // Python writes True
}

func readInteger(node *yaml.Node) (string, bool) {
	var n int64 // the text of the node is not used, because YAML has several ways to write a number
	if node.Kind != yaml.ScalarNode || node.ShortTag() != "!!int" || node.Load(&n) != nil {
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
	err := node.Load(&n)
	return n, err == nil
}

func readSize(node *yaml.Node) (string, bool) {
	if value, ok := readInteger(node); ok {
		return value, true
	}
	return readText(node)
}

// mostSeconds is the largest number of seconds. It is about thirty years, and fits into a
// time.Duration.
const mostSeconds = 1e9

func readSeconds(zero bool) func(*yaml.Node) (string, bool) {
	return func(node *yaml.Node) (string, bool) {
		n, ok := float(node)
		// The comparisons are false for NaN, which is refused. A positive number below a
		// nanosecond is refused, because it would become a duration of zero.
		if !ok || !(n >= 1e-9 && n <= mostSeconds) && !(zero && n == 0) {
			return "", false
		}
		return strconv.FormatFloat(math.Round(n*1e9)/1e9, 'f', -1, 64) + "s", true
	}
}

// seen describes a node for an error message.
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
