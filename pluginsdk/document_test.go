package pluginsdk_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/pluginsdk"
)

// document has the kinds of fields that an author may declare.
type document struct {
	Endpoint string            `yaml:"endpoint"`
	Timeout  time.Duration     `yaml:"timeout"`
	Ratio    float64           `yaml:"ratio"`
	Retries  uint8             `yaml:"retries"`
	Gzip     *bool             `yaml:"gzip"`
	Headers  map[string]string `yaml:"headers"`
	Rules    []rule            `yaml:"rules"`
	Level    level             `yaml:"level"`
	Since    time.Time         `yaml:"since"`
	Anything any               `yaml:"anything"`
	Raw      yaml.Node         `yaml:"raw"`
	Common   `yaml:",inline"`
	Plain    int
	Ignored  int `yaml:"-"`
	hidden   int
}

type Common struct {
	Team string `yaml:"team"`
}

type rule struct {
	Name string   `yaml:"name"`
	Keys []string `yaml:"keys,flow"`
	Sub  *rule    `yaml:"sub"`
}

// level decodes itself.
type level string

func (l *level) UnmarshalYAML(n *yaml.Node) error {
	switch n.Value {
	case "high", "low":
		*l = level(n.Value)
		return nil
	case "inside":
		return &pluginsdk.ConfigError{Path: "deeper", Err: errors.New("is wrong")}
	}
	return fmt.Errorf("%q, want high or low", n.Value)
}

// faults are the lines that an operator would see.
func faults(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func decode(text string, v any) error {
	return pluginsdk.Setup{Config: []byte(text)}.DecodeConfig(v)
}

func TestDecodeConfig(t *testing.T) {
	got := document{Endpoint: "default", Ratio: 1, hidden: 1}
	err := decode(`
endpoint: https://example.org
timeout: 1m30s
retries: 3
gzip: false
headers: {x-api-key: k, n: 5}
rules:
  - &first {name: a, keys: [x, "y"]}
  - sub: *first
  - <<: *first
    name: c
level: high
since: 2026-01-02T03:04:05Z
anything: {b: [1, {c: d}]}
raw: [1]
team: search
plain: 7
`, &got)
	if err != nil {
		t.Fatal(err)
	}
	off := false
	first := rule{Name: "a", Keys: []string{"x", "y"}}
	want := document{
		Endpoint: "https://example.org", Timeout: 90 * time.Second, Ratio: 1, Retries: 3, Gzip: &off,
		Headers:  map[string]string{"x-api-key": "k", "n": "5"},
		Rules:    []rule{first, {Sub: &first}, {Name: "c", Keys: []string{"x", "y"}}},
		Level:    "high",
		Since:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Anything: map[string]any{"b": []any{1, map[string]any{"c": "d"}}},
		Common:   Common{Team: "search"},
		Plain:    7,
		hidden:   1,
	}
	got.Raw = yaml.Node{}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(document{})); d != "" {
		t.Errorf("decoded (-want +got):\n%s", d)
	}
}

func TestDecodeConfigJSON(t *testing.T) {
	var got document
	err := decode("{\n\t\"endpoint\": \"a\\/b \\ud83d\\ude00 \\\\ud83d\\\\ude00 \\u00e9\",\n\t\"ratio\": 1E-1,\t\"gzip\": null, \"rules\": [{\"name\": \"x\"}]\n}", &got)
	want := document{Endpoint: "a/b \U0001F600 \\ud83d\\ude00 é", Ratio: 0.1, Rules: []rule{{Name: "x"}}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(document{})); err != nil || d != "" {
		t.Errorf("error %v, decoded (-want +got):\n%s", err, d)
	}
}

func TestDecodeConfigEmpty(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing yet\n", "---\n", "null", "~\n"} {
		got := document{Endpoint: "default"}
		if err := decode(text, &got); err != nil || got.Endpoint != "default" {
			t.Errorf("%q: error %v, endpoint %q, want it as it was", text, err, got.Endpoint)
		}
	}
}

func TestDecodeConfigFaults(t *testing.T) {
	keys := "endpoint, timeout, ratio, retries, gzip, headers, rules, level, since, anything, raw, team, plain"
	for _, c := range []struct {
		text string
		want []string
	}{
		{"endpont: x", []string{`endpont: line 1: unknown key "endpont", want one of ` + keys}},
		{"ignored: 1", []string{`ignored: line 1: unknown key "ignored", want one of ` + keys}},
		{"rules:\n- name: a\n- nam: b\n", []string{`rules[1].nam: line 3: unknown key "nam", want one of name, keys, sub`}},
		{"timeout: 5\nratio: much\nretries: 300\ngzip: 1\n", []string{
			`timeout: line 1: "5", want a duration such as "1m30s"`,
			`ratio: line 2: "much", want a number`,
			`retries: line 3: "300", want a whole number of 0 or more that fits into 8 bits`,
			`gzip: line 4: "1", want true or false`,
		}},
		{`"\x1b[31mhi\n": 1`, []string{`"\x1b[31mhi\n": line 1: unknown key "\x1b[31mhi\n", want one of ` + keys}},
		{"endpoint: [a]", []string{`endpoint: line 1: a list, want text`}},
		{"headers: x", []string{`headers: line 1: a text of 1 bytes, want a mapping`}},
		{"headers: {a: {}}", []string{`headers.a: line 1: a mapping, want text`}},
		{"rules: {}", []string{`rules: line 1: a mapping, want a list`}},
		{"rules: [x]", []string{`rules[0]: line 1: "x", want a mapping of name, keys, sub`}},
		{"- a", []string{"line 1: a list, want a mapping of " + keys}},
		{"level: middle", []string{`level: line 1: "middle", want high or low`}},
		{"level: inside", []string{`level.deeper: is wrong`}},
		{"since: soon", []string{`since: line 1: "soon", want a time such as "2006-01-02T15:04:05Z"`}},
		{"team: a\nteam: b", []string{`team: line 2: mapping key "team" already defined at line 1`}},
		{"anything: [{a: 1, a: 2}]", []string{`anything[0].a: line 1: mapping key "a" already defined at line 1`}},
		{"? [a]\n: b", []string{"line 1: a list as a key, want text"}},
		{"ratio: " + strings.Repeat("x", 100), []string{`ratio: line 1: "` + strings.Repeat("x", 64) + `"..., want a number`}},
		{"rules:\n- &r {nam: x}\n- <<: *r\n", []string{
			`rules[0].nam: line 2: unknown key "nam", want one of name, keys, sub`,
		}},
		{"a: b: c", []string{"line 1: not YAML: mapping values are not allowed in this context: look at the indentation, and put a value with a colon and a space in quotes"}},
		{"endpoint: \"a", []string{"line 1: not YAML: found unexpected end of stream: look for quotes that are not closed"}},
		{"team: a\n---\nteam: b", []string{"line 2: a second document begins, want one"}},
		{"team: [*a*]", []string{`line 1: not YAML: a value that begins with "*" and is no alias of an anchor: put it in quotes`}},
		{`team: "\d"`, []string{"line 1: not YAML: found unknown escape character: a backslash in double quotes begins an escape; put a regular expression in single quotes"}},
		{"\tteam: a", []string{"line 1: not YAML: found character that cannot start any token: indent with spaces, not tabs, and put a value that begins with \"@\", \"%\" or \"`\" in quotes"}},
		{"team: *nobody", []string{"line 1: not YAML: a value that begins with \"*\" and is no alias of an anchor: put it in quotes"}},
	} {
		var v document
		got := faults(decode(c.text, &v))
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", c.text, d)
		}
	}
}

// TestDecodeConfigBounds: no small document becomes a large one.
func TestDecodeConfigBounds(t *testing.T) {
	bomb := "anything:\n a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		bomb += fmt.Sprintf(" a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	many := strings.Repeat("unknown: 1\n", 0)
	for i := range 1000 {
		many += fmt.Sprintf("unknown%d: 1\n", i)
	}
	for name, c := range map[string]struct{ text, want string }{
		"bytes":     {strings.Repeat("#", 1<<20+1), "document has 1048577 bytes, want 1048576 at most"},
		"aliases":   {bomb, "document contains excessive aliasing"},
		"depth":     {"anything: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), "exceeded max depth of 100"},
		"deeper":    {"anything: " + strings.Repeat("[", 100_000), "exceeded max depth of 100"},
		"cycle":     {"anything: &a [*a]", "anchor 'a' value contains itself"},
		"own merge": {"rules:\n- &a\n  <<: *a\n", "cyclic merge alias"},
		"faults":    {many, "more errors follow"},
	} {
		t.Run(name, func(t *testing.T) {
			var v document
			err := decode(c.text, &v)
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 10_000 {
				t.Errorf("error is %.200v, want %q", err, c.want)
			}
		})
	}
}

// TestDecodeConfigInto decodes into valid and invalid types of authors.
func TestDecodeConfigInto(t *testing.T) {
	var none *document
	for _, v := range []any{nil, document{}, none} {
		if err := decode("team: a", v); err == nil || !strings.Contains(err.Error(), "want a pointer that is not nil") {
			t.Errorf("into %T: %v", v, err)
		}
	}
	var anything map[string]any
	if err := decode("a: [1, {b: c}]", &anything); err != nil || fmt.Sprint(anything) != "map[a:[1 map[b:c]]]" {
		t.Errorf("into a map: %v, %v", anything, err)
	}
	var empty struct{}
	if err := decode("a: 1", &empty); err == nil || err.Error() != `a: line 1: unknown key "a", want none` {
		t.Errorf("into an empty struct: %v", err)
	}
	var numbers map[int]string
	if err := decode("{a: b}", &numbers); err == nil || !strings.Contains(err.Error(), `"a" as a key, want a whole number`) {
		t.Errorf("into a map of numbers: %v", err)
	}
	var config *pluginsdk.ConfigError
	if err := decode("a: 1\nb: 2", &empty); !errors.As(err, &config) || config.Path != "a" {
		t.Errorf("the error is no ConfigError: %v", err)
	}
}

// FuzzDecodeConfig: any document is an error or a value, soon.
func FuzzDecodeConfig(f *testing.F) {
	for _, text := range []string{"a: &a {b: *a}", "rules: [{<<: {name: x}}]", "level: high", "{\"a\": \"\\ud83d\\ude00\"}", "? {a: b}\n: c", "raw: !!binary x", "<<: [*a, {}]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var v document
		var all map[string]any
		err := errors.Join(decode(text, &v), decode(text, &all))
		if err != nil && slices.Contains(faults(err), "") {
			t.Errorf("an error without a text: %q", err)
		}
	})
}
