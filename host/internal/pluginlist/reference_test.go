package pluginlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// values answers references of tests.
func values(reference string) (string, error) {
	value, ok := map[string]string{
		"x": "plain", "null": "null", "n": "123", "q": `a "b" 'c' \d`, "c": "k: v # w", "l": "one\ntwo\n", "r": "${x}", "e": "\u0085\u2028é😀\ufeff\x01", "t": " tab\t ",
	}[reference]
	if !ok {
		return "", errors.New("no " + reference)
	}
	return value, nil
}

// TestReferences checks that values keep their lines, and that other values keep their
// types.
func TestReferences(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"none", "a: 1 # ${x}\n", "a: 1 # ${x}\n"},
		{"a key", "${x}: 1\n\"${x}\": {\"${x}\": 2}\n", "${x}: 1\n\"${x}\": {\"${x}\": 2}\n"},
		{"plain", "a: ${x}\nb: 2\n", "{\"a\": \"plain\",\n\"b\": 2}\n"},
		{"within", "a: Bearer ${x}, ${n} # ${no}\n", "{\"a\": \"Bearer plain, 123\"}\n"},
		{"null and numbers stay texts", "- ${null}\n- ${n}\n", "[\"null\",\n\"123\"]\n"},
		{"other types", "- ${x}\n- ~\n-\n- 0x1F\n- 1.50\n- .inf\n- yes\n- true\n- 2026-01-02\n- '5'\n", "[\"plain\",\nnull,\nnull,\n0x1F,\n1.50,\n.inf,\n\"yes\",\ntrue,\n2026-01-02,\n\"5\"]\n"},
		{"quotes and colons", "a: ${q}\nb: '${c}'\nc: \"${c}\"\n", "{\"a\": \"a \\\"b\\\" 'c' \\\\d\",\n\"b\": \"k: v # w\",\n\"c\": \"k: v # w\"}\n"},
		{"lines", "a: ${l}\nb: x\n", "{\"a\": \"one\\ntwo\\n\",\n\"b\": \"x\"}\n"},
		{"special characters", "a: ${e}${t}\n", "{\"a\": \"\\u0085\\u2028é😀\\ufeff\\u0001 tab\\u0009 \"}\n"},
		{"a value is not resolved again", "a: ${r}\n", "{\"a\": \"${x}\"}\n"},
		{"escaped", "a: $${x} $$${x} ${x}$\n", "{\"a\": \"${x} $${x} plain$\"}\n"},
		{"in flow", "a: [\"${x}\", '${n}', {b: \"${x}\"}]\n", "{\"a\": [\"plain\", \"123\", {\"b\": \"plain\"}]}\n"},
		{"anchor, tag and alias", "a: &k !!str ${x}\nb: *k\nc: !mine ${x}\n<<: &m {d: 1}\n", "{\"a\": &k !!str \"plain\",\n\"b\": *k ,\n\"c\": !mine \"plain\",\n<<: &m {\"d\": 1}}\n"},
		{"keys of other kinds", "1: ${x}\n? [a]\n: b\n&k c: d\n*k : e\n", "{1: \"plain\",\n? [\"a\"]:\n\"b\",\n&k \"c\": \"d\",\n*k : \"e\"}\n"},
		{"block", "a: |\n  one ${x}\n\n  two\nb: ${x}\n", "{\"a\": \"one plain\\n\\ntwo\\n\",\n\n\n\n\"b\": \"plain\"}\n"},
		{"wide characters before", "é: {😀: \"${x}\"}\n", "{\"é\": {\"😀\": \"plain\"}}\n"},
		{"lines of Windows", "a: ${x}\r\nb: ${n}\r\n", "{\"a\": \"plain\",\n\"b\": \"123\"}\n"},
		{"a text alone", "${x}", "\"plain\"\n"},
		{"an escaped mark", `a: "\u0024{x}"`, `{"a": "plain"}` + "\n"},
		{"JSON", "{\n\t\"${x}\": \"${q}\",\n\t\"b\" : [\"${l}\", null, 1.0, 1E400, \"\\ud83d\\ude00\\/\"]\n}", "{\n\"${x}\": \"a \\\"b\\\" 'c' \\\\d\",\n\"b\": [\"one\\ntwo\\n\", null, 1.0, 1E400, \"😀/\"]}\n"},
		{"JSON text", `"${x}"`, `"plain"` + "\n"},
		{"JSON, escaped", `{"a": "$${x}", "b": "\u0024{x}"}`, `{"a": "${x}", "b": "plain"}` + "\n"},
		{"not understood, and without a reference", "a: [\n\\", "a: [\n\\"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := resolveReferences([]byte(test.in), values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestFaultyReferences(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"a: ${no}\nb: ${x}\nc:\n  - ${nope}\n", "line 1: no no\nline 4: no nope"},
		{"{\n\"a\": \"${no}\",\n\"b\": \"${nope}\"}", "line 2: no no\nline 3: no nope"},
		{"a: pa${ss\n", "line 1: there is ${ without } behind it; write a literal ${ as $${"},
		{"a: {b: ${x}}\n", "it has references (${…}), so it must be one document in YAML or JSON; put references in [ ] or { } in quotes: line 1: not YAML: did not find expected ',' or '}': look for a bracket or brace that is not closed"},
		{"a: ${x}\n---\nb: 1\n", "it has references (${…}), so it must be one document in YAML or JSON; put references in [ ] or { } in quotes: line 2: a second document begins, want one"},
		{"[" + strings.Repeat(`"${no}",`, 30) + "1]", strings.TrimSuffix(strings.Repeat("line 1: no no\n", mostFaults), "\n")},
	} {
		_, err := resolveReferences([]byte(test.in), values)
		if fmt.Sprint(err) != test.want {
			t.Errorf("%q: error\n%v\nwant\n%s", test.in, err, test.want)
		}
	}
	_, err := resolveReferences([]byte("["+strings.Repeat(`"${x}",`, 40)+"1]"), func(string) (string, error) { return strings.Repeat("x", mostSecretBytes), nil })
	if err == nil || !strings.HasPrefix(err.Error(), "line 1: the configuration has more than 1048576 bytes with its references resolved") {
		t.Errorf("a document that grows without end: %v", err)
	}
}

// FuzzReferences checks that a document without references is unchanged, and that only
// values with references change in others, without a change of any line.
func FuzzReferences(f *testing.F) {
	for _, text := range []string{
		"a: ${x}\n", "a: |2\n   ${x}\n\n\nb: 'x'''\n", "- &k ${x}\n- *k\n", "? [${x}]\n: \"${x}\\\n  \"\n", "{\"a\": \"${x}\"}", "%YAML 1.1\n---\n${x}\n...\n",
		"a: >+\n ${x}\n\n# c\n", "\ufeffa: ${x}\r", "a: \"\\x24{x}\"", "!!binary ${x}", "x: $${x}", "a: !!int ${x}", "a:\n  ${x}\n   b\n",
		"? {a: ${x},\n b}\n: &a !c {}\n", "a: ! ${x}\n!<tag:x,y> b: !!set {c}\n",
	} {
		f.Add(text, "v")
		f.Add(text, "a: \"b\n #")
	}
	f.Fuzz(func(t *testing.T, document, value string) {
		value = strings.ToValidUTF8(value, "")
		look := func(string) (string, error) { return value, nil }
		got, err := resolveReferences([]byte(document), look)
		if err != nil || string(got) == document {
			return
		}
		if !strings.Contains(document, "${") && !strings.Contains(document, `\`) {
			t.Fatalf("%q became %q", document, got)
		}
		before, errBefore := yamlfile.Parse([]byte(document))
		after, errAfter := yamlfile.Parse(got)
		if errBefore != nil || errAfter != nil {
			t.Fatalf("%q became %q: %v, %v", document, got, errBefore, errAfter)
		}
		if before, after := shape(before, look), shape(after, nil); !slices.Equal(before, after) {
			t.Errorf("%q became %q: %q, want %q", document, got, after, before)
		}
		if json.Valid([]byte(document)) && !json.Valid(got) {
			t.Errorf("%q became %q, which is no JSON", document, got)
		}
	})
}

// shape lists the nodes of a tree with their lines. With look, references in values are
// resolved.
func shape(root *yaml.Node, look lookUp) []string {
	var list []string
	var walk func(n *yaml.Node, key bool)
	walk = func(n *yaml.Node, key bool) {
		value, tag := n.Value, n.ShortTag()
		if n.Kind == yaml.ScalarNode && !key && look != nil && strings.Contains(value, "${") {
			r := resolver{look: look}
			value, _ = r.text(value)
		}
		if tag == "!!null" {
			value = "null"
		}
		list = append(list, fmt.Sprint(n.Kind, tag, n.Anchor, len(n.Content), " ", value))
		if n.Kind != yaml.AliasNode && tag != "!!null" {
			list = append(list, fmt.Sprint("line ", n.Line))
		}
		for i, child := range n.Content {
			walk(child, n.Kind == yaml.MappingNode && i%2 == 0)
		}
	}
	walk(root, false)
	return list
}

func TestSecretSources(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	most := strings.Repeat("x", mostSecretBytes)
	cfg := Settings{Lockdown: true, PluginEnv: map[string][]string{"p": {"MY_*"}}, Environ: []string{"MY_A=old", "MY_A=hunter2", "MY_EMPTY=", "MY_BAD=\xff", "OTHER=secret", "HOME=/root"}}
	for _, test := range []struct{ reference, want, err string }{
		{"env:MY_A", "hunter2", ""},
		{"env:HOME", "/root", ""}, // a base variable
		{"env:MY_NONE", "", "the variable is not set, or empty, in the environment of this process; set it"},
		{"env:MY_EMPTY", "", "the variable is not set, or empty, in the environment of this process; set it"},
		{"env:MY_BAD", "", "its value is not UTF-8, which a configuration cannot contain"},
		{"env:OTHER", "", "under lock-down (SERVE_TRACING_LOCKDOWN) a configuration refers only to variables that SERVE_TRACING_PLUGIN_ENV names for its plugin; add NAME:OTHER there"},
		{"env:MY_*", "", "must be the name of a variable"},
		{"env:", "", "must be the name of a variable"},
		{"file:" + write("a", "hunter2\n", 0o600), "hunter2", ""},
		{"file:" + write("b", "two\nlines\n\n", 0o600), "two\nlines\n", ""},
		{"file:" + write("c", "windows\r\n", 0o600), "windows", ""},
		{"file:" + write("most", most, 0o600), most, ""},
		{"file:" + write("large", most+"x", 0o600), "", "it has 65537 bytes, want 65536 at most"},
		{"file:" + write("empty", "\n", 0o600), "", "the file is empty"},
		{"file:" + write("binary", "a\x00b", 0o600), "", "its value is not UTF-8, which a configuration cannot contain"},
		{"file:" + dir, "", "this is no regular file (d---------); name a regular file"},
		{"file:" + pipe, "", "this is no regular file (p---------); name a regular file"},
		{"file:" + dir + "/nosuch", "", "there is no such file; create it, or correct its path"},
		{"file:secret", "", "the path must be absolute"},
		{"MY_A", "", "must be ${env:NAME} or ${file:/PATH}; write a literal ${ as $${"},
	} {
		got, err := secretsFor(&cfg, "p").lookUp(test.reference)
		want := "<nil>"
		if test.err != "" {
			want = "${" + test.reference + "}: " + test.err
		}
		if got != test.want || fmt.Sprint(err) != want {
			t.Errorf("%s is %q, %v; want %q, %s", test.reference, got, err, test.want, want)
		}
	}
	// What may be a part of a password is not shown.
	for reference, shown := range map[string]string{"vault:hunter2": "${vault:…}", "hunter 2": "${…}", "a b:hunter2": "${…}"} {
		_, err := secretsFor(&cfg, "p").lookUp(reference)
		if want := shown + ": must be ${env:NAME} or ${file:/PATH}; write a literal ${ as $${"; fmt.Sprint(err) != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestSecretFileOfAnotherUser: the error names the owner of the file.
func TestSecretFileOfAnotherUser(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte("x"), 0o200); err != nil {
		t.Fatal(err)
	}
	_, err := secretFile(path)
	want := fmt.Sprintf("this process (user %d) may not read it, which belongs to user %d and has mode 0200; check the owner and mode of the file and of its folders", os.Geteuid(), os.Geteuid())
	if fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestSecretsOfVariables(t *testing.T) {
	for _, test := range []struct {
		name, value string
		want        []string
	}{
		{"DD_API_KEY", "k", []string{"k"}},
		{"aws_session_token", "t", []string{"t"}},
		{"OTEL_EXPORTER_OTLP_HEADERS", "a=one,b=t%3Dwo", []string{"a=one,b=t%3Dwo", "one", "t%3Dwo", "t=wo"}},
		{"https_proxy", "http://u:p%40ss@h:1", []string{"p@ss", "u:p%40ss"}},
		{"https_proxy", "http://u@h:1", nil},
		{"AWS_WEB_IDENTITY_TOKEN_FILE", "/run/t", nil},
		{"GOOGLE_APPLICATION_CREDENTIALS", "/run/t", nil},
		{"LANG", "C", nil},
	} {
		if diff := cmp.Diff(test.want, secretsOf(test.name, test.value)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}
