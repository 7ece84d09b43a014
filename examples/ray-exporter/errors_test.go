package rayexporter

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each mistake is the cause of the plugin's state, with a remedy, and no request fails.
func TestMistakes(t *testing.T) {
	const list = "python:exporter:spans"
	interpreter := regexp.QuoteMeta(python(t))
	for _, test := range []struct {
		name, module string
		environ      []string
		cause        string // a pattern; DIR is the folder of the module
	}{
		{"no interpreter", "", []string{"SERVE_TRACING_PYTHON=python-that-is-missing"},
			`there is no interpreter python-that-is-missing in the folders of PATH \(.*\); install Python 3, or set SERVE_TRACING_PYTHON to the path of an interpreter`},
		{"no such interpreter", "", []string{"SERVE_TRACING_PYTHON=/nowhere/python"},
			`start /nowhere/python: there is no such file; set SERVE_TRACING_PYTHON to the path of an interpreter`},
		{"no package servetrace", "", []string{"PYTHONPATH="},
			`this Python has no package servetrace, which runs exporter:spans; run: ` + interpreter + ` -m pip install servetrace, or set SERVE_TRACING_PYTHON to another interpreter`},
		{"no module", "", nil,
			`configuration refused: there is no module 'exporter' for ` + interpreter + ` in .*, DIR; put exporter.py into one of them, or its folder on PYTHONPATH`},
		{"module without a package", "import acme_traces", nil,
			`the module 'exporter' needs 'acme_traces' \(DIR/exporter.py:1\): run ` + interpreter + ` -m pip install acme_traces`},
		{"module that raises", "import os\nos.environ['ACME_KEY']", nil,
			`the module 'exporter' cannot be imported: KeyError: 'ACME_KEY' \(DIR/exporter.py:2\)`},
		{"variable that is not granted", "import os\nos.environ['ACME_KEY']", []string{"ACME_KEY=k"},
			`KeyError: 'ACME_KEY' .*\(ACME_KEY is set for this process, .* exporter:ACME_KEY to SERVE_TRACING_PLUGIN_ENV\)`},
		{"no function", "def other(): pass", nil,
			`DIR/exporter.py has no function 'spans'; it has other`},
		{"function that raises", "def spans():\n    raise ValueError('no key')", nil,
			`exporter:spans raises ValueError: no key`},
		{"wrong result", "def spans():\n    return None", nil,
			`exporter:spans returns None of type NoneType; want a list of span processors`},
		{"folder of others", "def spans():\n    return []", nil,
			`it loads modules from DIR: others can change the folder DIR \(mode 0777, .*; run: chmod g?o-w DIR, or use another folder, or set SERVE_TRACING_PLUGIN_WRITABLE=allow`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if test.module != "" {
				write(t, dir, "exporter.py", test.module)
			}
			if test.name == "folder of others" {
				if err := os.Chmod(dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			s := start(t, dir, append([]string{"SERVE_TRACING_EXPORTER_PLUGIN=" + list}, test.environ...)...)
			s.Get("/", "r1")
			s.Await(s.Log, `plugin=exporter cause="?.*`+strings.ReplaceAll(test.cause, "DIR", regexp.QuoteMeta(dir)), 1)
			s.Get("/", "r2")
		})
	}
}

// A hook that raises rejects the batch, with its name in the account of the service.
func TestHookThatRaises(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "exporter.py", `
from opentelemetry.sdk.trace import SpanProcessor

class Hook(SpanProcessor):
    def on_start(self, span, parent_context=None):
        return None.request_id

def spans():
    return [Hook()]
`)
	s := start(t, dir, "SERVE_TRACING_EXPORTER_PLUGIN=python:exporter:spans")
	s.Get("/", "r1")
	s.Await(s.Log, `Hook.on_start raises AttributeError: 'NoneType' object has no attribute 'request_id'`, 1)
	s.Stop()
	wantAccount(t, s, "spans=4 exporter.delivered=0 exporter.rejected=map[INVALID_ARGUMENT:4]")
}
