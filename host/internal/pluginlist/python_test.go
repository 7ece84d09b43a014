package pluginlist

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFunctionsInPython(t *testing.T) {
	for _, test := range []struct {
		entry string
		want  Entry
		err   string
	}{
		{"python:exporter:default_tracing_exporter", Entry{Name: "exporter", Function: "exporter:default_tracing_exporter"}, ""},
		{"python:exporter.spans", Entry{Name: "exporter", Function: "exporter:spans"}, ""}, // Ray Serve takes a dot, too
		{"python:app.tracing._dd:spans", Entry{Name: "dd", Function: "app.tracing._dd:spans"}, ""},
		{"python:___:spans", Entry{Name: "python", Function: "___:spans"}, ""},
		{"traces=python:exporter:spans", Entry{Name: "traces", Function: "exporter:spans", Named: true}, ""},
		{"python:" + strings.Repeat("x", 64) + ":spans", Entry{}, "63 at most; write NAME=PATH"},
		{"python:", Entry{}, `"" is no function in Python; write python:MODULE:FUNCTION, such as python:exporter:default_tracing_exporter`},
		{"python:exporter", Entry{}, `"exporter" is no function in Python`},
		{"python:exporter.py:spans:x", Entry{}, `"exporter.py:spans:x" is no function in Python`},
		{"python:./exporter:spans", Entry{}, `"./exporter:spans" is no function in Python`},
		{"python:-m:spans", Entry{}, `"-m:spans" is no function in Python`},
		{"python:exporter:spans@sha256:" + strings.Repeat("ab", 32), Entry{}, "a function in Python has no pin (@sha256:…); pin the interpreter: SERVE_TRACING_PYTHON=PATH@sha256:…"},
	} {
		list, err := parseList(EnvPlugins, test.entry)
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("parse %q: error %v, want %q", test.entry, err, test.err)
			}
			continue
		}
		test.want.Where = strings.TrimPrefix(test.entry, "traces=")
		if diff := cmp.Diff([]Entry{test.want}, list); err != nil || diff != "" {
			t.Errorf("parse %q: %v (-want +got):\n%s", test.entry, err, diff)
		}
	}
	_, err := parseList(EnvPlugins, "python:exporter:a,python:exporter:b")
	if want := `entries "python:exporter:a" and "python:exporter:b" are both named "exporter"; write NAME=python:exporter:b to name one of them`; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("two functions of one module: %v, want %q", err, want)
	}
}

func TestInterpreterOfFunctions(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	for _, file := range []string{"python3", "python3.12"} {
		if err := os.WriteFile(filepath.Join(second, file), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(first, "python3"), 0o755); err != nil {
		t.Fatal(err)
	}
	e := Entry{Function: "exporter:spans"}
	for python, want := range map[string]string{
		"":                          filepath.Join(second, "python3"),
		"python3.12":                filepath.Join(second, "python3.12"),
		"/opt/venv/bin/python":      "/opt/venv/bin/python",
		"./.venv/bin/python":        "./.venv/bin/python",
		"/opt/a%40b/python" + pin(): "/opt/a@b/python",
	} {
		s := Settings{Plugins: "python:exporter:spans", Python: python, Environ: []string{"PATH=.:" + first + ":" + second}}
		got, err := e.Resolve(&s)
		if err != nil || got != want {
			t.Errorf("interpreter %q: %q, %v; want %q", python, got, err, want)
		}
		list, _, err := s.Expand(nil)
		if pinned := strings.Contains(python, "@"); err != nil || (list[0].Digest != "") != pinned {
			t.Errorf("interpreter %q: digest %q, %v; want one: %v", python, list[0].Digest, err, pinned)
		}
	}
	_, err := e.Resolve(&Settings{Environ: []string{"PATH=" + first}})
	if want := "there is no interpreter python3 in the folders of PATH (" + first + "); install Python 3, or set SERVE_TRACING_PYTHON to the path of an interpreter"; fmt.Sprint(err) != want {
		t.Errorf("error %v, want %s", err, want)
	}
	err = (&Settings{Python: "/usr/bin/python3@sha256:ab"}).Validate()
	if want := `SERVE_TRACING_PYTHON="/usr/bin/python3@sha256:ab": the pin must be @sha256: and 64 hexadecimal digits`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func pin() string { return PinMark + strings.Repeat("ab", 32) }

func TestPythonStartOfFunctions(t *testing.T) {
	e := Entry{Name: "exporter", Function: "exporter:spans"}
	for _, test := range []struct {
		what string
		s    Settings
		want PythonStart
	}{
		{"defaults", Settings{}, PythonStart{Args: []string{"-m", "servetrace.runner", "exporter:spans"}, Imports: []string{"."}}},
		{"with a service file", Settings{PythonDir: "/srv/app"}, PythonStart{
			Args: []string{"-m", "servetrace.runner", "--path", "/srv/app", "exporter:spans"}, Imports: []string{"/srv/app", "."},
		}},
		{"with PYTHONPATH", Settings{Environ: []string{"PYTHONPATH=/a::b"}}, PythonStart{
			Args:    []string{"-m", "servetrace.runner", "exporter:spans"},
			Imports: []string{".", "/a", ".", "b"}, Environ: []string{"PYTHONPATH=/a::b"},
		}},
		{"under lock-down", Settings{Lockdown: true, Environ: []string{"PYTHONPATH=/a"}}, PythonStart{
			Args: []string{"-m", "servetrace.runner", "exporter:spans"}, Imports: []string{"."},
		}},
		{"under lock-down that names it", Settings{Lockdown: true, Environ: []string{"PYTHONPATH=/a"}, PluginEnv: map[string][]string{"exporter": {"PYTHONPATH"}}}, PythonStart{
			Args: []string{"-m", "servetrace.runner", "exporter:spans"}, Imports: []string{".", "/a"}, Environ: []string{"PYTHONPATH=/a"},
		}},
	} {
		if diff := cmp.Diff(test.want, PythonStartOf(&test.s, e)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.what, diff)
		}
	}
	if diff := cmp.Diff(PythonStart{}, PythonStartOf(&Settings{PythonDir: "/srv"}, Entry{Where: "console"})); diff != "" {
		t.Errorf("another plugin (-want +got):\n%s", diff)
	}
}

func TestLockdownOfFunctions(t *testing.T) {
	for python, want := range map[string]string{
		"":                         `entry "python:exporter:spans": under lock-down (SERVE_TRACING_LOCKDOWN) a function in Python runs only with a pinned interpreter, and its modules are not pinned; set SERVE_TRACING_PYTHON to the output of: servetrace plugin pin PATH`,
		"/usr/bin/python3":         "runs only with a pinned interpreter",
		"./python3" + pin():        "under lock-down (SERVE_TRACING_LOCKDOWN) it must be an absolute path, or the name of a file in PATH",
		"/usr/bin/python3" + pin(): "",
		"python3" + pin():          "",
	} {
		err := (&Settings{Plugins: "python:exporter:spans", Python: python, Lockdown: true}).Validate()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("interpreter %q: error %v, want %q", python, err, want)
		}
	}
}
