package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/yamlfile"
)

// redacted returns the length of a text, such as "<12 bytes>", to be shown in its place.
func redacted(text string) string {
	if len(text) == 1 {
		return "<1 byte>"
	}
	return fmt.Sprintf("<%d bytes>", len(text))
}

// redactDocument returns a YAML or JSON document as YAML without secrets. It keeps keys of
// one line, numbers, booleans and nulls. It replaces all other values by their lengths, and
// drops comments. For an invalid document it returns only the length.
func redactDocument(document []byte) string {
	root, err := yamlfile.Parse(document)
	if err != nil { // the error could quote the document
		return fmt.Sprintf("# %s that are not one document in YAML or JSON\n", redacted(string(document)))
	}
	if root == nil {
		return ""
	}
	redactNode(root)
	text, err := yaml.Dump(root)
	if err != nil {
		return fmt.Sprintf("# %s that cannot be shown\n", redacted(string(document)))
	}
	return string(text)
}

// documentFault returns an error if a plugin's configuration is neither YAML nor JSON. A
// host gives such a document to the plugin without an error, unless it has references.
func documentFault(is host.Inspection) error {
	if len(is.Document()) == 0 || json.Valid(is.Config) {
		return nil
	}
	if _, err := yamlfile.Parse(is.Config); err != nil {
		return fmt.Errorf("configuration %s: %w", cmp.Or(is.ConfigFile, "document"), err)
	}
	return nil
}

// redactNode replaces the texts of a node and of all nodes below it. An alias has no text
// of its own, and the node that it refers to is in the document, too.
func redactNode(node *yaml.Node) {
	// Only unquoted numbers, booleans and nulls stay, because any other scalar may be a secret.
	plain := node.Style == 0 && node.ShortTag() != "!!str" && node.ShortTag() != "!!timestamp"
	node.HeadComment, node.LineComment, node.FootComment, node.Tag, node.Style = "", "", "", "", 0
	if node.Kind == yaml.ScalarNode && !plain {
		node.SetString(redacted(node.Value))
	}
	for i, child := range node.Content {
		if node.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && !strings.Contains(child.Value, "\n") {
			child.HeadComment, child.LineComment, child.FootComment, child.Tag, child.Style = "", "", "", "", 0 // the key stays, without its comments
			continue
		}
		redactNode(child)
	}
}
