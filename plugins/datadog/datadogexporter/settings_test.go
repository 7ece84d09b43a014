package datadogexporter

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

var spec = pluginsdk.Spec{Name: "datadog", Env: EnvPatterns(), Exporter: New}

// TestFaultsOfTheOperator: each is reported with its name and the allowed values.
func TestFaultsOfTheOperator(t *testing.T) {
	for setting, want := range map[string]string{
		"SERVE_DATADOG_MODE=udp":            `"udp": want tracer or otlp`,
		"DD_TRACE_AGENT_URL=localhost:8126": `"localhost:8126": want http://HOST:8126`,
		"DD_TRACE_AGENT_URL=ftp://a:b@c":    `"ftp://a:xxxxx@c": want http://HOST:8126`,
		"DD_TRACE_AGENT_URL=http://:8126":   `"http://:8126": want http://HOST:8126`,
		"DD_TRACE_AGENT_URL=http://a:99999": `port "99999": want http://HOST:8126`,
		"DD_TRACE_AGENT_PORT=99999":         `"99999": want a port, 1 to 65535`,
		"DD_AGENT_HOST=http://a":            `a URL goes into DD_TRACE_AGENT_URL`,
		"DD_TRACE_AGENT_TIMEOUT=5s":         `"5s": want whole seconds`,
		"DD_TRACE_AGENT_PROTOCOL_VERSION=2": `"2": want 0.4`,
		"DD_TRACE_ENABLED=false":            `"false" disables traces`,
		"DD_APM_TRACING_ENABLED=0":          `"0" disables traces`,
	} {
		name, _, _ := strings.Cut(setting, "=")
		found := plugintest.Diagnose(t, spec, plugintest.WithEnv(setting))
		if len(found) != 1 || !found[0].Error || found[0].Path != name || !strings.Contains(found[0].Text, want) {
			t.Errorf("%s: %+v, want an error of %s with %q", setting, found, name, want)
		}
	}
	found := plugintest.Diagnose(t, spec, plugintest.WithEnv("SERVE_DATADOG_MODE=otlp", "DD_AGENT_HOST=http://a"))
	if len(found) != 1 || found[0].Path != "DD_AGENT_HOST" {
		t.Errorf("a URL as the agent's host in the other mode: %+v", found)
	}
	found = plugintest.Diagnose(t, spec, plugintest.WithConfig([]byte("exporter: {endpoint: x}")))
	if len(found) != 1 || found[0].Path != "exporter.endpoint" {
		t.Errorf("a key of the other mode: %+v", found)
	}
}

// TestVariablesWithoutEffectAreTold, except for variables that ask for the plugin's own
// behaviour.
func TestVariablesWithoutEffectAreTold(t *testing.T) {
	found := plugintest.Diagnose(t, spec, plugintest.WithEnv(
		"DD_TRACE_SAMPLE_RATE=0.5", "DD_APPSEC_ENABLED=false", "DD_TRACE_STATS_COMPUTATION_ENABLED=true", "DD_API_KEY=k",
		"DD_TRACE_AGENT_PROTOCOL_VERSION=1.0", "DD_TRACE_SEND_RETRIES=3", "SERVE_DATADOG_MODE=agent"))
	var told []string
	for _, d := range found {
		if d.Error {
			t.Errorf("%+v", d)
		}
		told = append(told, d.Path)
	}
	if strings.Join(told, " ") != "SERVE_DATADOG_MODE DD_TRACE_AGENT_PROTOCOL_VERSION DD_TRACE_SEND_RETRIES" {
		t.Errorf("told are %q", told)
	}
}

// TestVariablesOfTheOtherModeAreTold: in the mode otlp, an operator who sets DD_ENV must
// learn that it has no effect.
func TestVariablesOfTheOtherModeAreTold(t *testing.T) {
	variables := []string{"DD_ENV=prod", "DD_SERVICE=s", "DD_VERSION=1", "DD_TAGS=a:b", "DD_TRACE_AGENT_URL=http://a:8126", "DD_TRACE_SAMPLE_RATE=1"}
	for _, mode := range []string{"tracer", "otlp"} {
		want := ""
		if mode == "otlp" {
			want = "DD_TRACE_AGENT_URL DD_SERVICE DD_ENV DD_VERSION DD_TAGS DD_TRACE_SAMPLE_RATE"
		}
		var told []string
		for _, d := range plugintest.Diagnose(t, spec, plugintest.WithEnv(append(variables, "SERVE_DATADOG_MODE="+mode)...)) {
			if d.Error {
				t.Errorf("%+v", d)
			}
			told = append(told, d.Path)
		}
		if strings.Join(told, " ") != want {
			t.Errorf("mode %s: told are %q, want %s", mode, told, want)
		}
	}
}

func TestAgentAddress(t *testing.T) {
	for variables, want := range map[string]string{
		"":                      "http://localhost:8126",
		"DD_AGENT_HOST=agent":   "http://agent:8126",
		"DD_TRACE_AGENT_PORT=1": "http://localhost:1",
		"DD_AGENT_HOST=fe80::1": "http://[fe80::1]:8126",
		"DD_TRACE_AGENT_URL=https://a:8 DD_AGENT_HOST=b": "https://a:8",
		"DD_TRACE_AGENT_URL=unix:///run/s":               "unix:///run/s",
		"SOCKET":                                         "unix:///var/run/datadog/apm.socket",
		"SOCKET DD_AGENT_HOST=b":                         "http://b:8126",
	} {
		s, _ := setup(strings.Fields(variables)...)
		got, err := agentAddress(s.Getenv, func(path string) bool {
			return path == defaultSocket && strings.HasPrefix(variables, "SOCKET")
		})
		if err != nil || got.String() != want {
			t.Errorf("%q: %v, %v, want %s", variables, got, err, want)
		}
	}
}

// TestQueryIsNotShown: a gateway in front of an agent may want a key in it.
func TestQueryIsNotShown(t *testing.T) {
	address, err := parseAgentURL("http://u:s3cret@127.0.0.1:1/x?key=s3cret")
	if err != nil {
		t.Fatal(err)
	}
	a := newAgent(address, time.Second)
	if strings.Contains(a.name, "s3cret") || a.base.Query().Get("key") != "s3cret" {
		t.Errorf("shown is %q, asked is %q", a.name, a.base)
	}
}

// TestOTLPPortIsClosed: the error names the setting that opens the port.
func TestOTLPPortIsClosed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	for protocol, want := range map[string]string{
		"http/protobuf": "DD_OTLP_CONFIG_RECEIVER_PROTOCOLS_HTTP_ENDPOINT=0.0.0.0:4318",
		"grpc":          "DD_OTLP_CONFIG_RECEIVER_PROTOCOLS_GRPC_ENDPOINT=0.0.0.0:4317",
	} {
		s, _ := setup("OTEL_EXPORTER_OTLP_ENDPOINT=http://" + l.Addr().String())
		s.Config = []byte("exporter: {mode: otlp, timeout: 5s, protocol: " + protocol + "}")
		e, err := New(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := export(t, e, traces(0, 1)); err == nil || pluginsdk.Final(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error is %v, want %q in it", protocol, err, want)
		}
		_ = e.Shutdown(t.Context())
	}
}

// TestOTLPPortIsTheProtocols: without an endpoint, the agent's host is used with the port
// of the protocol, whichever setting chose the protocol.
func TestOTLPPortIsTheProtocols(t *testing.T) {
	for variables, want := range map[string]string{
		"":                                 "endpoint=http://agent:4318/v1/traces",
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc": "endpoint=http://agent:4317 ",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc": "endpoint=http://agent:4317 ",
		"DOCUMENT": "endpoint=http://agent:4317 ",
		"DOCUMENT OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf": "endpoint=http://agent:4318/v1/traces",
	} {
		s, said := setup(append(strings.Fields(variables), "DD_AGENT_HOST=agent", "SERVE_DATADOG_MODE=otlp")...)
		if strings.HasPrefix(variables, "DOCUMENT") {
			s.Config = []byte("exporter: {protocol: grpc}")
		}
		e, err := New(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(said.String(), want) || strings.Contains(said.String(), "WARN") {
			t.Errorf("%s: said %q, want %q in it and no warning", variables, said, want)
		}
		_ = e.Shutdown(t.Context())
	}
}
