package settings_test

import (
	"slices"
	"testing"

	"github.com/servetrace/servetrace/internal/settings"
)

var known = []string{
	"SERVE_TRACING_EXPORTER_PLUGIN", "SERVE_TRACING_PLUGIN_DIR", "SERVE_TRACING_SAMPLING_RATIO", "OTEL_SERVICE_NAME",
	"SERVE_HTTP_PORT", "SERVE_GRPC_PORT", "SERVE_ADMIN_PORT", "SERVE_HTTP_HOST", "SERVE_HTTP_READ_HEADER_TIMEOUT",
}

// load reads all known variables, the first of them twice.
func load(getenv func(string) string) {
	for _, name := range append(known, known[0]) {
		_ = getenv(name)
	}
}

// TestUnread checks the warning for each variable, "" for none. The environment is one
// entry, beside the variables that Kubernetes would set.
func TestUnread(t *testing.T) {
	const nobody = "no reader"
	for _, c := range []struct {
		entry, want string
		beside      []string
	}{
		{entry: "SERVE_TRACING_EXPORTER_PLUGINS=x", want: "SERVE_TRACING_EXPORTER_PLUGINS: no reader; did you mean SERVE_TRACING_EXPORTER_PLUGIN?"},
		{entry: "SERVE_TRACING_SAMPLE_RATIO=0.1", want: "SERVE_TRACING_SAMPLE_RATIO: no reader; did you mean SERVE_TRACING_SAMPLING_RATIO?"},
		{entry: "SERVE_HTTP_PROT=1", want: "SERVE_HTTP_PROT: no reader; did you mean SERVE_HTTP_PORT?"},
		{entry: "SERVE_CONSOL_FORMAT=pretty", want: "SERVE_CONSOL_FORMAT: no reader; did you mean SERVE_CONSOLE_FORMAT?"},
		{entry: "SERVE_TRACING_RATIO=1", want: "SERVE_TRACING_RATIO: no reader; did you mean SERVE_TRACING_SAMPLING_RATIO?"},
		{entry: "SERVE_PORT=8080", want: "SERVE_PORT: no reader; did you mean SERVE_HTTP_PORT or SERVE_GRPC_PORT or SERVE_ADMIN_PORT?"},
		{entry: "SERVE_MY_OWN=hunter2", want: "SERVE_MY_OWN: no reader"},
		{entry: "SERVE_=x", want: "SERVE_: no reader"},
		{entry: "RAY_SERVE_TRACING_SAMPLING_RATIO=1", want: "RAY_SERVE_TRACING_SAMPLING_RATIO: Ray's settings have no effect here; set SERVE_TRACING_SAMPLING_RATIO"},
		{entry: "ANYSCALE_TRACING_EXPORTER_IMPORT_PATH=a:b", want: "ANYSCALE_TRACING_EXPORTER_IMPORT_PATH: Ray's settings have no effect here; set SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION"},
		{entry: "RAY_SERVE_TRACING_X=1", want: "RAY_SERVE_TRACING_X: Ray's settings have no effect here"},

		{entry: "SERVE_HTTP_PORT=1"},
		{entry: "SERVE_HTTP_PROT="}, // empty counts as unset
		{entry: "SERVE_CONSOLE_FORMAT=pretty"},
		{entry: "SERVE_ACME_TOKEN=x"},    // granted by its name
		{entry: "SERVE_FAMILY_MEMBER=x"}, // and by its family
		{entry: "RAY_SERVE_DEFAULT_HTTP_PORT=1"},
		{entry: "ANYSCALE_CLUSTER_ID=1"},
		{entry: "MY_SERVE_X=1"},
		{entry: "SERVEX=1"},

		// Kubernetes sets these in a pod for a Service "serve", and for one "serve-http".
		{entry: "SERVE_SERVICE_HOST=10.0.0.1"},
		{entry: "SERVE_SERVICE_PORT=8000", beside: []string{"SERVE_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_SERVICE_PORT_HTTP_METRICS=8000", beside: []string{"SERVE_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_PORT=tcp://10.0.0.1:8000", beside: []string{"SERVE_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_PORT_8000_TCP=tcp://10.0.0.1:8000", beside: []string{"SERVE_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_PORT_8000_UDP_PROTO=udp", beside: []string{"SERVE_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_UI_PORT_8000_TCP_ADDR=10.0.0.1", beside: []string{"SERVE_UI_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_HTTP_PROT_PORT=8000", want: "SERVE_HTTP_PROT_PORT: no reader", beside: []string{"SERVE_HTTP_PROT_SERVICE_HOST=10.0.0.1"}},
		{entry: "SERVE_PORT_8000_TCP=tcp://10.0.0.1:8000", want: "SERVE_PORT_8000_TCP: no reader"},
	} {
		var got string
		granted := map[string][]string{"acme": {"SERVE_ACME_TOKEN"}, "*": {"PATH", "SERVE_FAMILY_*"}}
		for _, warning := range settings.Warnings(settings.Unread(append(c.beside, c.entry), load, granted), nobody) {
			got += warning
		}
		if got != c.want {
			t.Errorf("%s: warning %q, want %q", c.entry, got, c.want)
		}
	}
}

// TestUnreadIsSorted checks that there is one warning per name, in the order of the
// names.
func TestUnreadIsSorted(t *testing.T) {
	var got []string
	for _, v := range settings.Unread([]string{"SERVE_B=1", "SERVE_A=1", "SERVE_B=2", "PATH=/bin"}, load, nil) {
		got = append(got, v.Name)
	}
	if want := []string{"SERVE_A", "SERVE_B"}; !slices.Equal(got, want) {
		t.Errorf("unread %q, want %q", got, want)
	}
}

// TestWarningsNameRaysVariablesTogether checks the one sentence about all of them.
func TestWarningsNameRaysVariablesTogether(t *testing.T) {
	environ := []string{
		"SERVE_HTTP_PROT=1", "RAY_SERVE_TRACING_SAMPLING_RATIO=1", "RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH=a:b",
		"ANYSCALE_TRACING_SAMPLING_RATIO=1", "RAY_SERVE_TRACING_X=1",
	}
	want := []string{
		"ANYSCALE_TRACING_SAMPLING_RATIO, RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH, RAY_SERVE_TRACING_SAMPLING_RATIO, RAY_SERVE_TRACING_X: " +
			"Ray's settings have no effect here; set SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION and SERVE_TRACING_SAMPLING_RATIO",
		"SERVE_HTTP_PROT: no reader; did you mean SERVE_HTTP_PORT?",
	}
	if got := settings.Warnings(settings.Unread(environ, load, nil), "no reader"); !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}
