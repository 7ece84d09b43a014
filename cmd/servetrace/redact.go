package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/servicefile"
)

// redacted is all that is shown of a text.
func redacted(text string) string {
	if len(text) == 1 {
		return "<1 byte>"
	}
	return fmt.Sprintf("<%d bytes>", len(text))
}

// redactDocument is a YAML or JSON document as YAML without any text: keys of one line,
// numbers, booleans and nulls are kept, of everything else there is the length,
// and comments are left out. It is empty for an empty document. Of one that can
// not be read there is only its length.
func redactDocument(document []byte) string {
	var out, compact bytes.Buffer
	if json.Valid(document) && json.Compact(&compact, document) == nil {
		document = compact.Bytes() // which YAML takes without its tabs
	}
	decoder := yaml.NewDecoder(bytes.NewReader(document))
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err == nil {
			redactNode(&node, map[*yaml.Node]bool{})
			err = encoder.Encode(&node)
		}
		if err != nil { // its text could quote the document
			return fmt.Sprintf("# %s that are neither YAML nor JSON\n", redacted(string(document)))
		}
	}
}

// documentFault says where a plugin's document is neither YAML nor JSON. The host
// passes it on without a look, but for references: those it has told of.
func documentFault(is host.Inspection) error {
	if len(is.Document()) == 0 || json.Valid(is.Config) {
		return nil
	}
	name := cmp.Or(is.ConfigFile, "the configuration")
	if fault := servicefile.Syntax(name, is.Config); fault != nil {
		return fmt.Errorf("configuration %w", fault)
	}
	return nil
}

// redactNode takes the texts out of a node and all below it. What an alias
// stands for is redacted where it is written.
func redactNode(node *yaml.Node, seen map[*yaml.Node]bool) {
	if node == nil || seen[node] {
		return
	}
	seen[node] = true
	strip(node)
	switch node.Kind {
	case yaml.ScalarNode:
		redactScalar(node)
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			redactKey(node.Content[i], seen)
			redactNode(node.Content[i+1], seen)
		}
	case yaml.DocumentNode, yaml.SequenceNode:
		for _, child := range node.Content {
			redactNode(child, seen)
		}
	case yaml.AliasNode:
	}
}

// redactKey keeps a key of one line, because it is a name that the plugin knows.
// It redacts a longer key, and a key that is a structure, as a value.
func redactKey(key *yaml.Node, seen map[*yaml.Node]bool) {
	if key.Kind != yaml.ScalarNode || strings.Contains(key.Value, "\n") {
		redactNode(key, seen)
		return
	}
	strip(key)
}

// strip takes off what stands beside a node and may say anything.
func strip(node *yaml.Node) {
	node.HeadComment, node.LineComment, node.FootComment, node.Tag = "", "", "", ""
}

// redactScalar keeps what is a number, a boolean or null by its own look. A tag
// may say so of anything, and quotes make a text of everything.
func redactScalar(node *yaml.Node) {
	bare := yaml.Node{Kind: yaml.ScalarNode, Value: node.Value}
	switch bare.ShortTag() {
	case "!!int", "!!float", "!!bool", "!!null":
		if node.Style == 0 {
			return
		}
	}
	*node = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: redacted(node.Value), Anchor: node.Anchor}
}
