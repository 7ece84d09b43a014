package pluginlist

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// A configuration may refer to credentials instead of containing them: "${env:NAME}" and
// "${file:/PATH}" in a value. The host resolves references just before the plugin gets
// the configuration. Keys and comments have no references.

// referenceMark is the beginning of a reference. referenceEscaped is plain text that
// begins with a dollar sign and a brace.
const (
	referenceMark    = "${"
	referenceEscaped = "$${"
)

// lookUp is a function that returns the value of a reference. Its argument is the text
// between the braces.
type lookUp func(reference string) (string, error)

// resolveReferences returns the document with its references resolved. A value with a
// reference becomes a text, even if it looks like a number. All values keep their lines,
// so that the line numbers in the plugin's errors stay right. All errors are reported at
// once, with their lines and without any value. A document without references is
// returned unchanged.
func resolveReferences(document []byte, look lookUp) ([]byte, error) {
	if !bytes.Contains(document, []byte(referenceMark)) && !bytes.ContainsRune(document, '\\') {
		return document, nil // it has no reference, not even with escaped characters
	}
	root, err := yamlfile.Parse(document)
	switch {
	case err != nil && bytes.Contains(document, []byte(referenceMark)):
		return nil, fmt.Errorf("it has references (${…}), so it must be one document in YAML or JSON; put references in [ ] or { } in quotes: %w", err)
	case err != nil, root == nil:
		return document, nil //nolint:nilerr // the plugin reports a better error
	}
	r := resolver{look: look}
	r.resolve(root)
	switch {
	case len(r.faults) > 0:
		return nil, errors.Join(r.faults...)
	case !r.changed:
		return document, nil
	}
	return yamlfile.Flow(root), nil
}

// mostFaults bounds the number of faulty references that are reported for one
// configuration.
const mostFaults = 20

type resolver struct {
	look    lookUp
	bytes   int // length of all values that have replaced references
	faults  []error
	changed bool
}

// resolve replaces the references in the values of a node and of the nodes in it. It
// has nothing to do for an alias, which has no text of its own.
func (r *resolver) resolve(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, referenceMark) {
		text, err := r.text(n.Value)
		if err != nil && len(r.faults) < mostFaults {
			r.faults = append(r.faults, fmt.Errorf("line %d: %w", n.Line, err))
		}
		n.Value, n.Style, r.changed = text, n.Style&yaml.TaggedStyle|yaml.DoubleQuotedStyle, true
	}
	for i, child := range n.Content {
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			r.resolve(child)
		}
	}
}

func (r *resolver) text(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, referenceMark)
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if strings.HasSuffix(before, "$") { // escaped: one dollar sign stays
			out.WriteString("{")
			text = rest
			continue
		}
		reference, behind, ended := strings.Cut(rest, "}")
		if !ended { // the text may be a part of a secret, so the error does not contain it
			return "", errors.New("there is ${ without } behind it; write a literal ${ as $${")
		}
		value, err := r.look(reference)
		if err != nil {
			return "", err
		}
		if r.bytes += len(value); r.bytes > mostConfigBytes {
			return "", fmt.Errorf("the configuration has more than %d bytes with its references resolved", mostConfigBytes)
		}
		out.WriteString(value)
		text = behind
	}
}
