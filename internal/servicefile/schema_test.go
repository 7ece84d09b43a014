package servicefile

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// schemaFile is the result of Schema, for editors.
const (
	root       = "../../"
	schemaFile = "deploy/service-file.schema.json"
)

// TestSchemaFile compares the file with the table.
func TestSchemaFile(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(root+schemaFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(root + schemaFile); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not the schema of the table (%v); run: go test ./internal/servicefile -run TestSchemaFile -update", schemaFile, err)
	}
}

// validator returns a function that validates YAML against the schema.
func validator(t *testing.T) func(text string) error {
	t.Helper()
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			return err
		}
		return compiled.Validate(value)
	}
}

// TestSchemaDecidesAsTheReader compares schema and reader for valid and invalid files.
func TestSchemaDecidesAsTheReader(t *testing.T) {
	validate := validator(t)
	for text, valid := range map[string]bool{
		"{}":                                    true,
		"name: shop":                            true,
		"naem: shop":                            false,
		"tracing_config: {sampling_ratio: 0.5}": true,
		"tracing_config: {sampling_ratio: '0.5'}":                       false,
		"tracing_config: {sample_ratio: 0.5}":                           false,
		"tracing_config: {exporter_plugin: [a, b], queue_bytes: 32MiB}": true,
		"tracing_config: {queue_bytes: [1]}":                            false,
		"tracing_config:":                                               true,
		"tracing_config: {plugins: {otlp: {config: {a: [1]}, env: A_B, limits: {memory: 64MiB}}}}": true,
		"tracing_config: {plugins: {otlp: {confg: {}}}}":                                           false,
		"tracing_config: {plugins: {'a b': {}}}":                                                   false,
		"http_options: {port: 8000, request_timeout_s: 1.5}":                                       true,
		"http_options: {prot: 8000}":                                                               false,
		"http_options: {request_timeout_s: 30s}":                                                   false,
		"http_options: {keep_alive_timeout_s: 0}":                                                  false,
		"http_options: {ssl_keyfile: k.pem}":                                                       false,
		"http_options: {ssl_keyfile: ''}":                                                          true,
		"logging_config: {log_level: WARNING}":                                                     true,
		"logging_config: {log_level: loud}":                                                        false,
		"ray_version: 2.60.0":                                                                      true,
		"env_vars: {A: b}":                                                                         false,
		"applications: [{name: a, import_path: x:y, deployments: [{name: d, num_replicas: 2, user_config: {a: 1}}]}]": true,
		"applications: [{name: a, deployments: [{name: d, num_replicas: 0}]}]":                                        false,
		"applications: [{name: a, deployments: [{name: d, replicas: 1}]}]":                                            false,
		"applications: {name: a}": false,
	} {
		read := Parse("f.yaml", []byte(text), func(string) string { return "" }).Err()
		if err := validate(text); (err == nil) != valid || (read == nil) != valid {
			t.Errorf("%s\nschema: %v\nreader: %v\nwant valid: %v", text, err, read, valid)
		}
	}
}

// TestSchemaNamesEveryKey: no key of the table is unknown to the schema.
func TestSchemaNamesEveryKey(t *testing.T) {
	data, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if k.form.schema == nil && k.form.says != document.says {
			t.Errorf("%s: its form %q has no schema", k.Path, k.form.says)
		}
		if last := k.Path[strings.LastIndexByte(k.Path, '.')+1:]; !bytes.Contains(data, []byte(`"`+last+`": {`)) {
			t.Errorf("%s is not in the schema", k.Path)
		}
	}
}

// yamlBlock matches a block of YAML in a page.
var yamlBlock = regexp.MustCompile("(?ms)^```yaml[^\n]*\n(.*?)^```")

// isServiceFile matches a section of a service file.
var isServiceFile = regexp.MustCompile(`(?m)^(tracing_config|http_options|grpc_options|applications|relay|logging_config|admin):`)

// TestServiceFilesOfTheRepository validates each service file and each block of one in
// the pages, and checks that the files name the schema for editors.
func TestServiceFilesOfTheRepository(t *testing.T) {
	validate := validator(t)
	files, blocks := 0, 0
	check := func(name, text string) bool {
		if !isServiceFile.MatchString(text) {
			return false
		}
		read := Parse(name, []byte(text), func(string) string { return "" }).Err()
		if err := validate(text); (err == nil) != (read == nil) {
			t.Errorf("%s\nschema: %v\nreader: %v", name, err, read)
		}
		return true
	}
	for _, dir := range []string{"docs", "examples", "test/seeds"} {
		err := filepath.WalkDir(root+dir, func(name string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".yaml" && filepath.Ext(name) != ".md" {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if filepath.Ext(name) == ".md" {
				for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
					if check(name, block[1]) {
						blocks++
					}
				}
				return nil
			}
			if !check(name, string(text)) {
				return nil
			}
			files++
			schemaAt, err := filepath.Rel(filepath.Dir(name), root+schemaFile)
			if line := "# yaml-language-server: $schema=" + schemaAt + "\n"; dir == "examples" && !strings.HasPrefix(string(text), line) {
				t.Errorf("%s does not begin with %q", name, line)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 4 || blocks < 4 {
		t.Errorf("%d files and %d blocks of pages, want four or more of both", files, blocks)
	}
}
