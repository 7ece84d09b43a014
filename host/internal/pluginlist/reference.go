package pluginlist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A document may refer to secrets instead of having them: "${env:NAME}" and
// "${file:/PATH}" in a value. References are resolved in the host, just before
// the plugin gets the document. Keys and comments are left alone, and so is
// every byte that is not part of a value with a reference.

// referenceMark begins a reference; with a dollar sign before it, it is just
// text.
const (
	referenceMark    = "${"
	referenceEscaped = "$${"
)

// lookUp returns the value of a reference, the text between the braces.
type lookUp func(reference string) (string, error)

// resolveReferences returns the document with its references resolved. A value with a
// reference becomes a text, whatever it looks like. It keeps its number of lines if
// possible, so that the line numbers in the plugin's errors stay right. All faults are
// one error, with their lines; none has a value in it. A document without references is
// returned itself.
func resolveReferences(document []byte, look lookUp) ([]byte, error) {
	if !bytes.Contains(document, []byte(referenceMark)) && !bytes.ContainsRune(document, '\\') {
		return document, nil // nor can there be an escaped one
	}
	if json.Valid(document) {
		return resolveJSON(document, look)
	}
	return resolveYAML(document, look)
}

// mostFaults bounds the faults that are reported of one document.
const mostFaults = 20

// resolver resolves texts and collects their faults.
type resolver struct {
	look   lookUp
	bytes  int // of all texts so far
	faults []error
}

// text resolves the references of one value; ok reports whether it has any, and no
// fault.
func (r *resolver) text(text string, line int) (resolved string, ok bool) {
	if !strings.Contains(text, referenceMark) {
		return "", false
	}
	var out strings.Builder
	for rest := text; rest != ""; {
		if after, escaped := strings.CutPrefix(rest, referenceEscaped); escaped {
			out.WriteString(referenceMark)
			rest = after
			continue
		}
		after, begins := strings.CutPrefix(rest, referenceMark)
		if !begins {
			out.WriteByte(rest[0])
			rest = rest[1:]
			continue
		}
		reference, behind, ended := strings.Cut(after, "}")
		if !ended { // it may be a part of anything: it is not shown
			return "", r.fault(line, errors.New("there is ${ without } behind it; write a literal ${ as $${"))
		}
		value, err := r.look(reference)
		if err != nil {
			return "", r.fault(line, err)
		}
		if r.bytes += len(value); r.bytes > mostConfigBytes {
			return "", r.fault(line, fmt.Errorf("the document has more than %d bytes with its references resolved", mostConfigBytes))
		}
		out.WriteString(value)
		rest = behind
	}
	return out.String(), len(r.faults) == 0
}

func (r *resolver) fault(line int, err error) (ok bool) {
	if len(r.faults) < mostFaults {
		r.faults = append(r.faults, fmt.Errorf("line %d: %w", line, err))
	}
	return false
}

// splice is a part of a document, and its replacement.
type splice struct {
	from, to int
	text     string
}

// spliced returns the document with its parts, which are in order, replaced.
func spliced(document []byte, parts []splice) []byte {
	var out []byte
	at := 0
	for _, p := range parts {
		out = append(append(out, document[at:p.from]...), p.text...)
		at = p.to
	}
	return append(out, document[at:]...)
}

// resolveJSON works on the text itself: in valid JSON, a string before a colon is a
// key, and any other string a value.
func resolveJSON(document []byte, look lookUp) ([]byte, error) {
	r := resolver{look: look}
	var parts []splice
	line := 1
	for at := 0; at < len(document); at++ {
		switch document[at] {
		case '\n':
			line++
		case '"':
			from, to := at, endOfQuoted(document, at)
			at = to - 1
			if rest := bytes.TrimLeft(document[to:], " \t\r\n"); len(rest) > 0 && rest[0] == ':' {
				continue
			}
			var text string
			if err := json.Unmarshal(document[from:to], &text); err != nil {
				continue // cannot happen: the document is valid
			}
			if resolved, ok := r.text(text, line); ok {
				parts = append(parts, splice{from, to, quoteText(resolved)})
			}
		}
	}
	switch {
	case len(r.faults) > 0:
		return nil, errors.Join(r.faults...)
	case parts == nil:
		return document, nil
	}
	return spliced(document, parts), nil
}

// endOfQuoted returns the end of a text in double quotes that begins at from, or 0.
func endOfQuoted(document []byte, from int) int {
	for at := from + 1; at < len(document); at++ {
		switch document[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return 0
}

// quoteText returns a text in double quotes, in one line, for both JSON and YAML.
func quoteText(text string) string {
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

// resolveYAML finds the values by their nodes, and replaces the text of each. It reads
// the result again and compares. If the form of a value is not understood here, it
// writes the whole document anew.
func resolveYAML(document []byte, look lookUp) ([]byte, error) {
	docs, err := readYAML(document)
	if err != nil {
		if !bytes.Contains(document, []byte(referenceMark)) {
			return document, nil // the plugin says it better
		}
		return nil, fmt.Errorf("it has references (${…}) and is neither YAML nor JSON, where a reference in [ ] or { } stands in quotes: %w", err)
	}
	r := resolver{look: look}
	resolved := map[*yaml.Node]string{}
	var nodes []*yaml.Node
	for _, doc := range docs {
		walkValues(doc, func(n *yaml.Node) {
			if text, ok := r.text(n.Value, n.Line); ok {
				nodes = append(nodes, n)
				resolved[n] = text
			}
		})
	}
	switch {
	case len(r.faults) > 0:
		return nil, errors.Join(r.faults...)
	case nodes == nil:
		return document, nil
	}
	lines := lineStarts(document)
	var parts []splice
	for _, n := range nodes {
		if from, to, ok := extent(document, lines, n); ok {
			parts = append(parts, splice{from, to, quoteLines(resolved[n], document[from:to])})
		}
		n.Value = resolved[n]
	}
	if len(parts) == len(nodes) && inOrder(parts) {
		if out := spliced(document, parts); comesTo(out, docs) {
			return out, nil
		}
	}
	for _, n := range nodes {
		n.Style = n.Style&yaml.TaggedStyle | yaml.DoubleQuotedStyle
	}
	if out, err := writeYAML(docs); err == nil && comesTo(out, docs) {
		return out, nil
	}
	return nil, fmt.Errorf("line %d: the reference stands in a value of a form that cannot be changed; write the value in one line, in double quotes", nodes[0].Line)
}

// readYAML reads all documents of a stream.
func readYAML(document []byte) ([]*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	var docs []*yaml.Node
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		switch {
		case errors.Is(err, io.EOF):
			return docs, nil
		case err != nil:
			return nil, err
		}
		docs = append(docs, &doc)
	}
}

func writeYAML(docs []*yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	for _, doc := range docs {
		if err := encoder.Encode(doc); err != nil {
			return nil, err
		}
	}
	return out.Bytes(), encoder.Close()
}

// walkValues visits the scalars of a tree, except keys, in their order.
func walkValues(n *yaml.Node, visit func(*yaml.Node)) {
	switch n.Kind {
	case yaml.ScalarNode:
		visit(n)
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			walkValues(n.Content[i], visit)
		}
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, child := range n.Content {
			walkValues(child, visit)
		}
	case yaml.AliasNode: // its text stands elsewhere
	}
}

func inOrder(parts []splice) bool {
	return slices.IsSortedFunc(parts, func(a, b splice) int { return a.from - b.to })
}

// comesTo reports whether a document has the given trees, except for comments and
// style.
func comesTo(document []byte, want []*yaml.Node) bool {
	got, err := readYAML(document)
	return err == nil && slices.EqualFunc(got, want, sameTree)
}

func sameTree(a, b *yaml.Node) bool {
	return a.Kind == b.Kind && a.ShortTag() == b.ShortTag() && a.Value == b.Value && a.Anchor == b.Anchor &&
		slices.EqualFunc(a.Content, b.Content, sameTree)
}
