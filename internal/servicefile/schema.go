package servicefile

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// schema is a JSON Schema.
type schema map[string]any

// Schema returns the JSON Schema (draft 2020-12) of service files, for editors. It has every key
// of the table. It also has the keys of Ray's and Anyscale's files that this project does not
// read, with the reason. It does not describe the configuration of a plugin.
func Schema() ([]byte, error) {
	root := section()
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "servetrace service file"
	for _, k := range keys {
		of := schema{"description": describe(k)}
		for name, value := range k.form.schema {
			of[name] = value
		}
		root.put(k.Path, of)
	}
	for _, group := range foreign {
		for _, path := range group.paths {
			of := schema{"description": "No effect: " + group.why + ".", "deprecated": true}
			if group.fatal {
				of = schema{"description": "An error: " + group.why + ".", "enum": []any{nil, "", []any{}, schema{}}}
			}
			root.put(path, of)
		}
	}
	return json.MarshalIndent(root, "", "  ")
}

// section returns the schema of a mapping to which keys are added later. The mapping may be null.
func section() schema {
	return schema{"type": []string{"object", "null"}, "additionalProperties": false, "properties": schema{}}
}

// put adds the schema of the key at a path. It adds the schemas of the sections around the key
// if they are missing.
func (s schema) put(path string, key schema) {
	word, rest, nested := strings.Cut(path, ".")
	below := s["properties"].(schema)
	name, isList := strings.CutSuffix(word, "[]")
	if word == anyName {
		below, name = s["patternProperties"].(schema), pluginName.String()
	}
	if !nested {
		below[name] = key
		return
	}
	next, found := below[name].(schema)
	if !found {
		next = section()
		if rest == anyName || strings.HasPrefix(rest, anyName+".") {
			next["patternProperties"] = schema{}
		}
		if isList {
			next = schema{"type": []string{"array", "null"}, "items": section()}
		}
		below[name] = next
	}
	if isList {
		next = next["items"].(schema)
	}
	next.put(rest, key)
}

// link matches a Markdown link in Key.Meaning. describe replaces it by the text of the link.
var link = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// describe returns the text that an editor shows for a key.
func describe(k Key) string {
	text := link.ReplaceAllString(k.Meaning, "$1") + "."
	if k.Default != "" {
		text += fmt.Sprintf(" Default: %s.", k.Default)
	}
	if k.Variable != "" {
		text += fmt.Sprintf(" Variable: %s.", k.Variable)
	}
	return text
}
