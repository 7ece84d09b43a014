package yamlfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Flow returns node as a document in flow style, without comments. Each key and each
// value is in the line of its node, so that an error of another reader has the line of
// the original file. Texts are in double quotes; other scalars stay as they are written.
// The result is JSON if the node was read from JSON.
func Flow(node *yaml.Node) []byte {
	w := flowWriter{line: 1}
	w.node(node)
	return append(w.out, '\n')
}

// maxKey is the length of a key, in bytes, from which on a question mark must announce
// the key. The parser's bound for other keys is 1024.
const maxKey = 500

type flowWriter struct {
	out  []byte
	line int // of the end of out
}

func (w *flowWriter) node(n *yaml.Node) {
	w.goTo(n.Line)
	if n.Anchor != "" {
		w.add("&" + n.Anchor + " ")
	}
	if n.Style&yaml.TaggedStyle != 0 {
		w.add(tagOf(n) + " ")
	}
	switch n.Kind {
	case yaml.MappingNode:
		w.list("{", n.Content, 2, "}")
	case yaml.SequenceNode:
		w.list("[", n.Content, 1, "]")
	case yaml.AliasNode:
		w.add("*" + n.Value + " ") // a colon behind it would be part of the name
	default:
		w.add(scalarText(n))
	}
}

// list writes the members of a collection. A member of a mapping has two nodes.
func (w *flowWriter) list(begin string, nodes []*yaml.Node, size int, end string) {
	w.add(begin)
	for i, n := range nodes {
		switch {
		case i%size != 0:
			w.add(": ")
		case i > 0:
			w.add(", ")
		}
		if size == 2 && i%size == 0 && (len(n.Content) > 0 || len(n.Value) > maxKey) {
			w.goTo(n.Line)
			w.add("? ")
		}
		w.node(n)
	}
	w.add(end)
}

// goTo ends lines until the writer is at a line. It does nothing for a lower line.
func (w *flowWriter) goTo(line int) {
	if w.line < line {
		w.out = append(bytes.TrimRight(w.out, " "), strings.Repeat("\n", line-w.line)...)
		w.line = line
	}
}

func (w *flowWriter) add(text string) { w.out = append(w.out, text...) }

// scalarText returns a scalar as flow style has it.
func scalarText(n *yaml.Node) string {
	const quotes = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	tagged := n.Style&yaml.TaggedStyle != 0
	switch {
	case n.Style&quotes != 0:
	case n.ShortTag() == "!!null": // null may be written as nothing
		return "null"
	case !tagged && n.ShortTag() != "!!str", json.Valid([]byte(n.Value)):
		return n.Value
	}
	return Quote(n.Value)
}

// tagOf returns a tag as a document has it.
func tagOf(n *yaml.Node) string {
	if strings.HasPrefix(n.Tag, "!") {
		return n.Tag
	}
	return "!<" + n.LongTag() + ">"
}

// Quote returns a text in double quotes, in one line, for both JSON and YAML.
func Quote(text string) string {
	out := []byte{'"'}
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case c == '\n':
			out = append(out, `\n`...)
		case c < ' ' || c >= 0x7f && c < 0xa0 || c == 0x2028 || c == 0x2029 || c == 0xfeff || c == 0xfffe || c == 0xffff:
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = utf8.AppendRune(out, c)
		}
	}
	return string(append(out, '"'))
}
