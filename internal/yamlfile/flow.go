package yamlfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// Flow returns node as a document in YAML's flow style, without comments. Each key and each value
// stays in its line. So if another program finds an error in the document, the line is right for
// the original file, too. Texts are in double quotes, and other scalars are unchanged. If the
// node was read from JSON, the result is JSON.
func Flow(node *yaml.Node) []byte {
	w := flowWriter{line: 1}
	w.node(node)
	return append(w.out, '\n')
}

// maxKey is the length in bytes above which a flowWriter writes a question mark before a key. YAML
// parsers accept a longer key than 1024 bytes only after a question mark.
const maxKey = 500

// flowWriter writes a document in flow style.
type flowWriter struct {
	out  []byte
	line int // number of the line at the end of out
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
		w.add("*" + n.Value + " ") // a colon directly after it would be part of the name
	default:
		w.add(scalarText(n))
	}
}

// list writes a mapping or a sequence. Each member consists of size nodes: two in a mapping, one in
// a sequence.
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

// goTo writes line breaks until the writer is at the given line. It does nothing if the
// writer has passed that line.
func (w *flowWriter) goTo(line int) {
	if w.line < line {
		w.out = append(bytes.TrimRight(w.out, " "), strings.Repeat("\n", line-w.line)...)
		w.line = line
	}
}

func (w *flowWriter) add(text string) { w.out = append(w.out, text...) }

// scalarText returns the text of a scalar in flow style.
func scalarText(n *yaml.Node) string {
	const quotes = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	tagged := n.Style&yaml.TaggedStyle != 0
	switch {
	case n.Style&quotes != 0:
	case n.ShortTag() == "!!null": // null may be written as an empty text
		return "null"
	case !tagged && n.ShortTag() != "!!str", json.Valid([]byte(n.Value)):
		return n.Value
	}
	return Quote(n.Value)
}

// tagOf returns the tag of a node as it is written in a document.
func tagOf(n *yaml.Node) string {
	if strings.HasPrefix(n.Tag, "!") {
		return n.Tag
	}
	return "!<" + n.LongTag() + ">"
}

// Quote returns a text in double quotes, in one line, in a form that both JSON and YAML
// accept.
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
