package yamlfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

func TestRead(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want, fault string }{
		{name: "whole", path: write("whole", "12345678", 0o600), want: "12345678"},
		{name: "too large", path: write("large", "123456789", 0o600), fault: "it has 9 bytes, want 8 at most"},
		{name: "missing", path: filepath.Join(folder, "missing"), fault: "there is no such file; create it, or correct its path"},
		{name: "pipe", path: pipe, fault: "this is no regular file (p---------); name a regular file"},
		{name: "folder", path: folder, fault: "this is no regular file (d---------); name a regular file"},
	} {
		got, err := yamlfile.Read(c.path, 8)
		if string(got) != c.want || (c.fault == "") != (err == nil) || err != nil && err.Error() != c.fault {
			t.Errorf("%s: %q, %v, want %q, %q", c.name, got, err, c.want, c.fault)
		}
	}
	if _, err := yamlfile.Read(filepath.Join(folder, "missing"), 8); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the error of a missing file is no fs.ErrNotExist: %v", err)
	}
}

func TestReadDenied(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("the superuser may read every file")
	}
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := yamlfile.Read(path, 8); !errors.Is(err, fs.ErrPermission) || !strings.HasPrefix(err.Error(), "this process may not read it") {
		t.Errorf("got %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ text, fault string }{
		{"a: 1", ""},
		{"{\n\t\"a\": \"\\ud83d\\ude00\"\n}", ""}, // JSON with tabs and a pair of surrogates
		{"a: 1\nb: é\xe9", "line 2: the byte 0xe9 is no text; write the file in UTF-8"},
		{"a: \"\x01\"", "line 1: the byte 0x01 is no text; write the file in UTF-8"},
		{"\xff\xfea\x00:\x00 \x001\x00", "line 1: the byte 0xff is no text; write the file in UTF-8"}, // UTF-16
		{"\xfe\xff\x00a\x00:\x00 \x001", "line 1: the byte 0xfe is no text; write the file in UTF-8"},
		{"a: 1\n---\nb: 2\n", "line 2: a second document begins, want one"},
		{"a: 1\n--- [", "line 3: not YAML: did not find expected node content"},
		{"a: b\n\tc: 1", "line 2: not YAML: found a tab character that violates indentation: indent with spaces, not tabs"},
		{"a: [1", "line 2: not YAML: did not find expected ',' or ']': look for a bracket or brace that is not closed"},
		{strings.Repeat("#", yamlfile.MaxBytes+1), "document has 1048577 bytes, want 1048576 at most"},
	} {
		node, err := yamlfile.Parse([]byte(c.text))
		if (err == nil) != (c.fault == "") || err != nil && err.Error() != c.fault {
			t.Errorf("%.30q: %v, want %q", c.text, err, c.fault)
		}
		if (node == nil) != (err != nil) {
			t.Errorf("%.30q: node %v beside error %v", c.text, node, err)
		}
	}
	for _, text := range []string{"", "# nothing\n", "null", "---\n"} {
		if node, err := yamlfile.Parse([]byte(text)); node != nil || err != nil {
			t.Errorf("%q: %v, %v, want neither", text, node, err)
		}
	}
}

// TestErrorPlace: an error has the place and the path of the value.
func TestErrorPlace(t *testing.T) {
	node, err := yamlfile.Parse([]byte("rules:\n- name: a\n-   nam: b\n"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Rules []struct {
			Name string `yaml:"name"`
		} `yaml:"rules"`
	}
	var fault *yamlfile.Error
	if err := yamlfile.Decode(node, &v); !errors.As(err, &fault) {
		t.Fatalf("no *Error: %v", err)
	}
	if fault.Line != 3 || fault.Column != 5 || fault.Path != "rules[1].nam" || fault.Text != `unknown key "nam", want one of name` {
		t.Errorf("got %+v", *fault)
	}
	if want := `line 3: rules[1].nam: unknown key "nam", want one of name`; fault.Error() != want {
		t.Errorf("got %q, want %q", fault, want)
	}
}
