package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
)

// setUp is an environment for the command, with plugins in a folder of its own.
type setUp struct {
	dir string
	env map[string]string
	// attributes are of the shell, if not nil.
	attributes *syscall.SysProcAttr
}

// newSetUp returns a set-up with plugins of these names, which are links to this test
// binary.
func newSetUp(t *testing.T, names ...string) *setUp {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &setUp{dir: t.TempDir()}
	bin, dir := s.path("bin"), s.path("plugins")
	errs := []error{os.Mkdir(bin, 0o700), os.Mkdir(dir, 0o700), os.Symlink(exe, filepath.Join(bin, "servetrace"))}
	for _, name := range names {
		errs = append(errs, os.Symlink(exe, filepath.Join(dir, name)))
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	s.env = map[string]string{
		"PATH": bin + ":" + os.Getenv("PATH"), "HOME": s.dir, "TMPDIR": t.TempDir(), "GORACE": "atexit_sleep_ms=0",
		"SERVE_TRACING_PLUGIN_DIR": dir, "SERVE_TRACING_EXPORTER_PLUGIN": "echo",
		"EDITOR": s.path("bin/edit"), // for the next command
	}
	s.write(t, "bin/edit", "#!/bin/sh\nfor file; do :; done\ncp right \"$file\"\n")
	return s
}

func (s *setUp) path(name string) string { return filepath.Join(s.dir, name) }

// write writes a file, executable if it is below bin or plugins.
func (s *setUp) write(t *testing.T, name, text string) string {
	t.Helper()
	mode := os.FileMode(0o600)
	if strings.Contains(name, "/") {
		mode = 0o700
	}
	if err := os.WriteFile(s.path(name), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return s.path(name)
}

// doctor runs a shell with the command "next", and then the doctor. It returns the
// report and the exit code.
func (s *setUp) doctor(t *testing.T, next string, args ...string) (report, int) {
	t.Helper()
	script := next + "\nexec servetrace doctor -o json " + strings.Join(args, " ")
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.attributes
	for name, value := range s.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatalf("%v\n%s", exit, stderr.String())
	}
	if strings.Contains(stdout.String()+stderr.String(), "secret-of") {
		t.Errorf("the report shows the value of a variable:\n%s%s", stdout.String(), stderr.String())
	}
	var r report
	text := stdout.String()
	if at := strings.Index(text, "{\n"); at >= 0 { // the next command may print
		text = text[at:]
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.String(), stderr.String())
	}
	return r, cmd.ProcessState.ExitCode()
}

// first returns the first finding with an error.
func (r report) first() finding {
	i := slices.IndexFunc(r.Findings, func(f finding) bool { return f.Result == failed })
	if i < 0 {
		return finding{}
	}
	return r.Findings[i]
}

// otlp makes the set-up send by OTLP to a back end that answers with a status.
func (s *setUp) otlp(t *testing.T, status int) *httptest.Server {
	t.Helper()
	back := httptest.NewServer(answering(status))
	t.Cleanup(back.Close)
	s.env["SERVE_TRACING_EXPORTER_PLUGIN"] = "otlp"
	s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = back.URL
	return back
}

func answering(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("authorization") != "" {
			status = http.StatusOK
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(status)
	})
}

// otlpGRPC is the same with a back end for gRPC, and returns its address.
func (s *setUp) otlpGRPC(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, accepting{})
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(func() { server.Stop(); <-served })
	s.env["SERVE_TRACING_EXPORTER_PLUGIN"] = "otlp"
	s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://" + listener.Addr().String()
	return listener.Addr().String()
}

type accepting struct {
	coltracepb.UnimplementedTraceServiceServer
}

func (accepting) Export(context.Context, *coltracepb.ExportTraceServiceRequest) (*coltracepb.ExportTraceServiceResponse, error) {
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// unused returns an address at which no process listens.
func unused(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

func set(name, value string) func(*testing.T, *setUp) {
	return func(_ *testing.T, s *setUp) { s.env[name] = value }
}

const envPlugins = "SERVE_TRACING_EXPORTER_PLUGIN"

// brokenSetUp is a set-up with one fault.
type brokenSetUp struct {
	name    string
	plugins []string // besides echo and otlp
	fault   func(*testing.T, *setUp)
	// check and text are the check of the first error and a part of its text.
	check, text string
	// next is the beginning of its next command. It mends the fault, unless mend does.
	next string
	mend func(*testing.T, *setUp)
	// stays: the fault is in the plugin or the network, so that no setting mends it.
	stays bool
}

var brokenSetUps = []brokenSetUp{
	{name: "invalid ratio", fault: set("SERVE_TRACING_SAMPLING_RATIO", "10%"),
		check: "settings", text: "want a number from 0 to 1", next: "unset SERVE_TRACING_SAMPLING_RATIO"},
	{name: "misspelt key of the service file", fault: func(t *testing.T, s *setUp) {
		s.env["SERVE_CONFIG"] = s.write(t, "serve.yaml", "http_options:\n  prot: 8000\n")
		s.write(t, "right", "http_options:\n  port: 8000\n")
	}, check: "settings", text: "did you mean port?", next: "${EDITOR:-vi} +2 "},
	{name: "declarative configuration", fault: set("OTEL_CONFIG_FILE", "otel.yaml"), check: "settings", text: "declarative configuration is not read",
		next: "unset OTEL_CONFIG_FILE"},
	{name: "missing service file", fault: set("SERVE_CONFIG", "serve.yaml"), check: "settings", text: "no such file", next: "ls -l serve.yaml",
		mend: func(t *testing.T, s *setUp) { s.write(t, "serve.yaml", "{}") }},
	{name: "comma too many", fault: set(envPlugins, "echo,,otlp"), check: "settings", text: "names no plugin", mend: set(envPlugins, "echo")},
	{name: "semicolon", fault: set(envPlugins, "echo;otlp"), check: "settings", text: "a comma between plugins", next: "servetrace config check", mend: set(envPlugins, "echo")},
	{name: "home folder", fault: set(envPlugins, "~/echo"), check: "settings", text: "is a home folder to a shell only", next: "servetrace config check", mend: set(envPlugins, "echo")},
	{name: "short pin", fault: set(envPlugins, "echo@sha256:abcd"), check: "settings", text: "it has 4 characters", next: "servetrace config check", mend: set(envPlugins, "echo")},
	{name: "two plugins of one name", fault: set(envPlugins, "echo,./plugins/echo"), check: "settings", text: `both named "echo"`, mend: set(envPlugins, "echo")},
	{name: "misspelt list variable", fault: func(_ *testing.T, s *setUp) {
		delete(s.env, envPlugins)
		s.env["SERVE_TRACING_EXPORTER_PLUGINS"] = "echo"
	}, check: "settings", text: "did you mean SERVE_TRACING_EXPORTER_PLUGIN?", next: `export SERVE_TRACING_EXPORTER_PLUGIN="$`},
	{name: "misspelt ratio", fault: set("SERVE_TRACING_SAMPLE_RATIO", "0.5"), check: "settings", text: "did you mean SERVE_TRACING_SAMPLING_RATIO?",
		next: `export SERVE_TRACING_SAMPLING_RATIO="$`},

	{name: "no list", fault: func(_ *testing.T, s *setUp) { delete(s.env, envPlugins) }, check: "list", text: "is not set, so tracing is off",
		next: "export SERVE_TRACING_EXPORTER_PLUGIN=console", plugins: []string{"console"}},
	{name: "SDK disabled", fault: set("OTEL_SDK_DISABLED", "true"), check: "list", text: "OTEL_SDK_DISABLED=true", next: "unset OTEL_SDK_DISABLED"},
	{name: "exporter none", fault: set("OTEL_TRACES_EXPORTER", "none"), check: "list", text: "OTEL_TRACES_EXPORTER=none", next: "unset OTEL_TRACES_EXPORTER"},
	{name: "disabled in the service file", fault: func(t *testing.T, s *setUp) {
		delete(s.env, envPlugins)
		s.env["SERVE_CONFIG"] = s.write(t, "serve.yaml", "tracing_config: {enabled: false, exporter_plugin: echo}")
		s.write(t, "right", "tracing_config: {enabled: true, exporter_plugin: echo}")
	}, check: "list", text: "tracing_config.enabled is not true", next: "${EDITOR:-vi} "},
	{name: "empty folder", fault: func(t *testing.T, s *setUp) {
		s.env[envPlugins] = s.path("none") + "/"
		if err := os.Mkdir(s.path("none"), 0o700); err != nil {
			t.Fatal(err)
		}
	}, check: "list", text: "the folders of the list have none", next: "ls -l ", mend: set(envPlugins, "echo")},

	{name: "ratio 0", fault: set("SERVE_TRACING_SAMPLING_RATIO", "0"), check: "sampling", text: "no root trace is sampled",
		next: "export SERVE_TRACING_SAMPLING_RATIO=1"},
	{name: "sampler always_off", fault: set("OTEL_TRACES_SAMPLER", "always_off"), check: "sampling", text: "environment OTEL_TRACES_SAMPLER",
		next: "export SERVE_TRACING_SAMPLING_RATIO=1"},

	{name: "misspelt bare name", fault: set(envPlugins, "ecco"), check: "file", text: `there is no plugin "ecco"`, next: "export SERVE_TRACING_EXPORTER_PLUGIN=echo"},
	{name: "folder above the plugins", fault: func(_ *testing.T, s *setUp) { s.env["SERVE_TRACING_PLUGIN_DIR"] = s.dir }, check: "file", text: `there is no plugin "echo"`,
		next: "export SERVE_TRACING_PLUGIN_DIR="},
	{name: "missing plugin folder", fault: set("SERVE_TRACING_PLUGIN_DIR", "/nosuch"), check: "file", text: "/nosuch (there is no such folder)", next: "ls -l /nosuch",
		mend: func(_ *testing.T, s *setUp) { s.env["SERVE_TRACING_PLUGIN_DIR"] = s.path("plugins") }},
	{name: "misspelt path", fault: set(envPlugins, "./plugins/ehco"), check: "file", text: "there is no such file",
		next: "export SERVE_TRACING_EXPORTER_PLUGIN=./plugins/echo"},
	{name: "misspelt path with a name and a pin", fault: func(t *testing.T, s *setUp) {
		s.env[envPlugins] = "e=./plugins/ehco@" + pinOfFile(t, s.path("plugins/echo"))
	}, check: "file", text: "there is no such file", next: "export SERVE_TRACING_EXPORTER_PLUGIN='e=./plugins/echo@sha256:"},
	{name: "misspelt processor", plugins: []string{"testplugin-processor"}, fault: set("SERVE_TRACING_PROCESSOR_PLUGIN", "testplugin-procesor"),
		check: "file", text: `there is no plugin "testplugin-procesor"`, next: "export SERVE_TRACING_PROCESSOR_PLUGIN=testplugin-processor"},
	{name: "not executable", fault: func(t *testing.T, s *setUp) {
		s.env[envPlugins] = copyPlugin(t, s, "plugins/echo.copy")
		if err := os.Chmod(s.path("plugins/echo.copy"), 0o600); err != nil {
			t.Fatal(err)
		}
	}, check: "file", text: "is not executable", next: "chmod +x "},
	{name: "wrong pin", fault: set(envPlugins, "./plugins/echo@sha256:"+strings.Repeat("0", 64)), check: "file", text: "its bytes are not the pinned ones",
		next: "servetrace plugin pin ", mend: func(t *testing.T, s *setUp) {
			out, err := exec.CommandContext(t.Context(), s.path("bin/servetrace"), "plugin", "pin", s.path("plugins/echo")).Output()
			if err != nil {
				t.Fatal(err)
			}
			s.env[envPlugins] = strings.TrimSpace(string(out))
		}},
	{name: "folder for everybody", fault: func(t *testing.T, s *setUp) {
		if err := os.Chmod(s.path("plugins"), 0o777); err != nil {
			t.Fatal(err)
		}
	}, check: "file", text: "others can change the folder", next: "chmod o-w "},
	{name: "another machine", fault: func(t *testing.T, s *setUp) {
		s.env[envPlugins] = copyPlugin(t, s, "plugins/alien")
		f, err := os.OpenFile(s.path("plugins/alien"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{0x16, 0}, 18) // e_machine: S/390
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}, check: "file", text: "it is built for s390x", next: "file ", mend: set(envPlugins, "echo")},
	{name: "no program", fault: func(t *testing.T, s *setUp) { s.env[envPlugins] = s.write(t, "plugins/text", "hello\n") },
		check: "file", text: "neither an ELF file nor a script", next: "file ", mend: set(envPlugins, "echo")},
	{name: "missing interpreter", fault: func(t *testing.T, s *setUp) { s.env[envPlugins] = s.write(t, "plugins/script", "#!/nosuch/python\n") },
		check: "file", text: "its interpreter or loader is missing", next: "head -c 100 ", mend: set(envPlugins, "echo")},
	{name: "missing Python", fault: func(_ *testing.T, s *setUp) {
		s.env[envPlugins], s.env["SERVE_TRACING_PYTHON"] = "python:exporter:spans", "/nosuch/python"
	}, check: "file", text: "set SERVE_TRACING_PYTHON to the path of an interpreter", next: "ls -l /nosuch", mend: set(envPlugins, "echo")},

	{name: "ends before the handshake", plugins: []string{"testplugin-exit"}, fault: set(envPlugins, "testplugin-exit"),
		check: "handshake", text: "no licence for this plugin", next: "servetrace plugin info testplugin-exit", stays: true},
	{name: "no handshake", plugins: []string{"testplugin-silent:1m"}, fault: func(_ *testing.T, s *setUp) {
		s.env[envPlugins], s.env["SERVE_TRACING_START_TIMEOUT"] = "silent=testplugin-silent:1m", "1s"
	}, check: "handshake", text: "no handshake within the start timeout", next: "servetrace plugin info testplugin-silent:1m", stays: true},
	{name: "plugin of another program", plugins: []string{"testplugin-alien"}, fault: set(envPlugins, "testplugin-alien"),
		check: "handshake", text: "a go-plugin program of another host", next: "servetrace plugin info ", stays: true},
	{name: "newer protocol", plugins: []string{"testplugin-version:7"}, fault: set(envPlugins, "new=testplugin-version:7"),
		check: "version", text: "speaks protocol version 7", next: "servetrace plugin info ", stays: true},
	{name: "net/rpc", plugins: []string{"testplugin-netrpc"}, fault: set(envPlugins, "testplugin-netrpc"),
		check: "version", text: "speaks netrpc", next: "servetrace plugin info ", stays: true},
	{name: "processor in the list of exporters", plugins: []string{"testplugin-processor"}, fault: set(envPlugins, "echo,p=testplugin-processor"),
		check: "version", text: "it is a processor in the list of exporters", next: "export SERVE_TRACING_EXPORTER_PLUGIN=echo SERVE_TRACING_PROCESSOR_PLUGIN='p=testplugin-processor'"},
	{name: "pinned processor in the list of exporters", plugins: []string{"testplugin-processor"}, fault: func(t *testing.T, s *setUp) {
		s.env[envPlugins] = "echo,./plugins/testplugin-processor@" + pinOfFile(t, s.path("plugins/testplugin-processor"))
	}, check: "version", text: "it is a processor in the list of exporters", next: "export SERVE_TRACING_EXPORTER_PLUGIN=echo SERVE_TRACING_PROCESSOR_PLUGIN=./plugins/testplugin-processor@sha256:"},
	{name: "processor alone in the list of exporters", plugins: []string{"testplugin-processor", "console"}, fault: set(envPlugins, "testplugin-processor"),
		check: "version", text: "it is a processor in the list of exporters", next: "export SERVE_TRACING_EXPORTER_PLUGIN=console SERVE_TRACING_PROCESSOR_PLUGIN=testplugin-processor"},
	{name: "exporter in the list of processors", plugins: []string{"testplugin-record"}, fault: set("SERVE_TRACING_PROCESSOR_PLUGIN", "testplugin-record"),
		check: "version", text: "it is an exporter in a list of processors", next: "export SERVE_TRACING_EXPORTER_PLUGIN='echo,testplugin-record' SERVE_TRACING_PROCESSOR_PLUGIN=''"},
	{name: "no TraceService", plugins: []string{"testplugin-stock:empty"}, fault: set(envPlugins, "empty=testplugin-stock:empty"),
		check: "version", text: "TraceService", next: "servetrace plugin info ", stays: true},

	{name: "required variable", fault: set("ECHO_WANT", "ECHO_TOKEN"), check: "configuration", text: "ECHO_TOKEN: is not set", next: "export ECHO_TOKEN=VALUE"},
	{name: "variable not declared", fault: func(_ *testing.T, s *setUp) { s.env["ECHO_WANT"], s.env["ACME_TOKEN"] = "ACME_TOKEN", "secret-of-acme" },
		check: "configuration", text: "the plugin does not declare it", next: `export SERVE_TRACING_PLUGIN_ENV="${SERVE_TRACING_PLUGIN_ENV:+$SERVE_TRACING_PLUGIN_ENV,}`},
	{name: "no scheme", fault: func(t *testing.T, s *setUp) {
		back := s.otlp(t, http.StatusOK)
		s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = back.Listener.Addr().String()
	}, check: "configuration", text: "has no scheme", next: `export OTEL_EXPORTER_OTLP_ENDPOINT="http://`},
	{name: "unknown protocol", fault: func(t *testing.T, s *setUp) { s.otlp(t, http.StatusOK); s.env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http" },
		check: "configuration", text: `"http" is not known`, next: "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
	{name: "misspelt key of a configuration", fault: func(t *testing.T, s *setUp) {
		s.otlp(t, http.StatusOK)
		s.env["SERVE_TRACING_PLUGIN_CONFIG"] = "otlp=" + s.write(t, "otlp.yaml", "exporter: {compresion: gzip}")
		s.write(t, "right", "exporter: {compression: gzip}")
	}, check: "configuration", text: "compresion", next: "${EDITOR:-vi} "},
	{name: "missing configuration", fault: func(_ *testing.T, s *setUp) { s.env["SERVE_TRACING_PLUGIN_CONFIG"] = "echo=" + s.path("echo.yaml") },
		check: "configuration", text: "no such file", mend: func(t *testing.T, s *setUp) { s.write(t, "echo.yaml", "{}") }},

	{name: "no listener", fault: func(t *testing.T, s *setUp) {
		s.otlp(t, http.StatusOK)
		s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://" + unused(t)
	}, check: "back end", text: "connection refused", next: "curl -v http://127.0.0.1:", mend: func(t *testing.T, s *setUp) { s.otlp(t, http.StatusOK) }},
	{name: "unknown host", fault: func(_ *testing.T, s *setUp) {
		s.env[envPlugins], s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "otlp", "http://collector.invalid:4318"
	}, check: "back end", text: "lookup collector.invalid", next: "getent hosts collector.invalid", mend: func(t *testing.T, s *setUp) { s.otlp(t, http.StatusOK) }},
	{name: "TLS to a port without", fault: func(t *testing.T, s *setUp) {
		s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "https://" + s.otlp(t, http.StatusOK).Listener.Addr().String()
	}, check: "back end", text: "TLS handshake", next: `export OTEL_EXPORTER_OTLP_ENDPOINT="http://`},
	{name: "no Datadog agent", plugins: []string{"datadog"}, fault: func(t *testing.T, s *setUp) {
		s.env[envPlugins], s.env["DD_TRACE_AGENT_URL"] = "datadog", "http://"+unused(t)
	}, check: "back end", text: "connection refused", next: "curl -v http://127.0.0.1:", stays: true},

	{name: "port for gRPC", fault: func(t *testing.T, s *setUp) { s.otlpGRPC(t) }, check: "span", text: "gRPC", next: "export OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	{name: "port for HTTP", fault: func(t *testing.T, s *setUp) { s.otlp(t, http.StatusOK); s.env["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc" },
		check: "span", text: "gRPC", next: "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
	{name: "no TLS to a port with", fault: func(t *testing.T, s *setUp) {
		back := httptest.NewUnstartedServer(answering(http.StatusOK))
		back.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // of the test's own fault
		back.StartTLS()
		t.Cleanup(back.Close)
		s.env[envPlugins], s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "otlp", "http://"+back.Listener.Addr().String()
		s.env["SSL_CERT_FILE"] = s.write(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: back.Certificate().Raw})))
	}, check: "span", text: "TLS", next: `export OTEL_EXPORTER_OTLP_ENDPOINT="https://`},
	{name: "no credentials", fault: func(t *testing.T, s *setUp) { s.otlp(t, http.StatusUnauthorized) }, check: "span", text: "no credentials were sent",
		next: "export OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20TOKEN"},
	{name: "wrong path", fault: func(t *testing.T, s *setUp) { s.otlp(t, http.StatusNotFound) }, check: "span", text: "404",
		next: "servetrace plugin run ", stays: true},
	{name: "path twice", fault: func(t *testing.T, s *setUp) {
		mux := http.NewServeMux()
		mux.Handle("/v1/traces", answering(http.StatusOK))
		back := httptest.NewServer(mux)
		t.Cleanup(back.Close)
		s.env[envPlugins], s.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = "otlp", back.URL+"/v1/traces"
	}, check: "span", text: "/v1/traces is appended to OTEL_EXPORTER_OTLP_ENDPOINT", next: `export OTEL_EXPORTER_OTLP_ENDPOINT="${OTEL_EXPORTER_OTLP_ENDPOINT%`},
	{name: "rejected", plugins: []string{"testplugin-permanent"}, fault: set(envPlugins, "testplugin-permanent"),
		check: "span", text: "the back end does not know this token", next: "servetrace plugin run ", stays: true},
	{name: "crash", plugins: []string{"testplugin-crash:1"}, fault: set(envPlugins, "crash=testplugin-crash:1"),
		check: "span", text: "the plugin ended while it exported", next: "servetrace plugin run ", stays: true},
	{name: "no answer", plugins: []string{"testplugin-hang"}, fault: func(_ *testing.T, s *setUp) {
		s.env[envPlugins], s.env["SERVE_TRACING_EXPORT_TIMEOUT"] = "testplugin-hang", "1s"
	}, check: "span", text: "not delivered", next: "servetrace plugin run ", stays: true},
}

// pinOfFile returns the pin of a file.
func pinOfFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return digestOf(text)
}

// TestDoctorKnowsThePythonPackage: a variable of the Python package causes no warning.
func TestDoctorKnowsThePythonPackage(t *testing.T) {
	s := newSetUp(t, "echo")
	s.env["SERVE_TRACING_RELAY"], s.env["SERVE_TRACING_RELAY_AUTOSTART"] = "unix:///run/relay.sock", "off"
	got, code := s.doctor(t, "")
	for _, f := range got.Findings {
		if code != exitOK || strings.Contains(f.Text, "SERVE_TRACING_RELAY") {
			t.Errorf("exit code %d, %+v", code, f)
		}
	}
}

// copyPlugin writes a copy of the test binary, which is the plugin echo.
func copyPlugin(t *testing.T, s *setUp, name string) string {
	t.Helper()
	exe, err := os.ReadFile(s.path("plugins/echo"))
	if err != nil {
		t.Fatal(err)
	}
	return "echo=" + s.write(t, name, string(exe))
}

// TestDoctorFindsTheFault checks that the first error of each broken set-up is its fault,
// and that the next command mends it, typed in the same shell.
func TestDoctorFindsTheFault(t *testing.T) {
	for _, c := range brokenSetUps {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSetUp(t, append(c.plugins, "echo", "otlp")...)
			c.fault(t, s)
			got, code := s.doctor(t, "")
			first := got.first()
			if first.Check != c.check || !strings.Contains(first.Text+strings.Join(first.Details, "\n"), c.text) || !strings.HasPrefix(first.Next, c.next) || first.Next == "" || code != exitNo {
				t.Fatalf("the first error is %+v, exit code %d; want %s: …%s…, next: %s…", first, code, c.check, c.text, c.next)
			}
			if c.stays {
				return
			}
			next := first.Next
			if c.mend != nil {
				c.mend(t, s)
				next = ""
			}
			if got, code = s.doctor(t, next); code != exitOK || got.Errors != 0 {
				t.Errorf("after %q: exit code %d, %+v", next, code, got.first())
			}
		})
	}
}

// TestDoctorOfAService checks the first error of a running service, by its status page.
func TestDoctorOfAService(t *testing.T) {
	sampler := admin.Sampling{Sampler: "parentbased_traceidratio", Ratio: 1}
	ready := in("otlp", host.StateReady)
	with := func(change func(*host.ExporterStats)) []host.ExporterStats {
		x := ready
		change(&x)
		return []host.ExporterStats{x}
	}
	never := sampler
	never.Ratio = 0
	for _, c := range []struct {
		name        string
		sampling    admin.Sampling
		stats       host.Stats
		check, text string // empty: no error
		warnings    int
	}{
		{"good", sampler, host.Stats{Ended: 3, Accepted: 3, Exporters: []host.ExporterStats{ready}}, "", "", 0},
		{"off", sampler, host.Stats{}, "list", "the service has no plugins", 0},
		{"ratio 0", never, host.Stats{Exporters: []host.ExporterStats{ready}}, "sampling", "no root trace is sampled", 0},
		{"small ratio", admin.Sampling{Sampler: "traceidratio", Ratio: 0.01}, host.Stats{Ended: 1, Accepted: 1, Exporters: []host.ExporterStats{ready}}, "", "", 1},
		{"nothing sampled", sampler, host.Stats{Exporters: []host.ExporterStats{ready}}, "spans", "no span has ended", 0},
		{"refused", sampler, host.Stats{Ended: 3, Accepted: 1, Refused: map[string]uint64{"queue_full": 2}, Exporters: []host.ExporterStats{ready}}, "", "", 1},
		{"state", sampler, host.Stats{Ended: 1, Accepted: 1, Exporters: with(func(x *host.ExporterStats) { x.State, x.Cause = host.StateBackingOff, "no such file" })},
			"service", "backing-off: no such file", 0},
		{"last error", sampler, host.Stats{Ended: 1, Accepted: 1, Exporters: with(func(x *host.ExporterStats) {
			x.LastError, x.LastErrorTime = "UNAVAILABLE: no listener", time.Now()
		})}, "service", "UNAVAILABLE: no listener", 0},
		{"advice", sampler, host.Stats{Ended: 1, Accepted: 1, Exporters: with(func(x *host.ExporterStats) {
			x.LastError, x.LastErrorTime = "write https:// in OTEL_EXPORTER_OTLP_ENDPOINT", time.Now()
		})}, "service", "write https://", 0},
		{"dropped", sampler, host.Stats{Ended: 1, Accepted: 1, Exporters: with(func(x *host.ExporterStats) { x.Accepted, x.Dropped = 1, map[string]uint64{"max_age": 1} })}, "", "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, err := admin.NewServer(admin.Config{Addr: "127.0.0.1:0"}, func() host.Stats { return c.stats }, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			server.ShowSampling(c.sampling)
			if err := server.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
			var out bytes.Buffer
			cmd := newRoot(func(string) string { return "" }, nil)
			cmd.SetArgs([]string{"doctor", "-o", "json", "--admin", server.URL()})
			cmd.SetOut(&out)
			code := exitCode(t.Context(), cmd.ExecuteContext(t.Context()))
			var got report
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			first := got.first()
			if first.Check != c.check || !strings.Contains(first.Text, c.text) || got.Warnings != c.warnings || code == exitOK != (c.check == "") {
				t.Errorf("exit code %d, %d warnings, the first error is %+v; want %s: …%s…, %d warnings", code, got.Warnings, first, c.check, c.text, c.warnings)
			}
			if c.check != "" && (first.Next == "" || strings.HasPrefix(first.Next, "servetrace status")) {
				t.Errorf("no next command for %+v", first)
			}
		})
	}
}

// TestDoctorWithoutService: an address at which no service answers is an error.
func TestDoctorWithoutService(t *testing.T) {
	cmd := newRoot(func(string) string { return "" }, nil)
	cmd.SetArgs([]string{"doctor", "--admin", unused(t)})
	var out bytes.Buffer
	cmd.SetOut(&out)
	if code := exitCode(t.Context(), cmd.ExecuteContext(t.Context())); code != exitNo || !strings.Contains(out.String(), "ERROR    service") {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}

// TestDoctorTarget: the forms of a plugin's address, and the connection that doctor tries.
func TestDoctorTarget(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:relative.sock": "unix relative.sock", "unix:/run/a.sock": "unix /run/a.sock", "unix:///run/a.sock": "unix /run/a.sock",
		"dns:///back:4317": "tcp back:4317", "https://back": "tcp back:443", "back:4317": "tcp back:4317", "ftp://back": " ",
	} {
		network, at, _ := target(address{Endpoint: endpoint})
		if got := network + " " + at; got != want {
			t.Errorf("%s: %q, want %q", endpoint, got, want)
		}
	}
}

// TestDoctorNamesItsCommand: the advice has the command that the user has typed.
func TestDoctorNamesItsCommand(t *testing.T) {
	for first, want := range map[string]string{
		"/usr/bin/servetrace": "servetrace plugin explain", "python3 -m servetrace": "python3 -m servetrace plugin explain",
	} {
		r := report{command: typedCommand(first)}
		r.add(finding{Next: "servetrace plugin explain"})
		r.add(finding{Next: "export A=1"})
		if r.Findings[0].Next != want || r.Findings[1].Next != "export A=1" {
			t.Errorf("%s: %+v, want %q", first, r.Findings, want)
		}
	}
}

// TestDoctorMarks: signs are for terminals that show UTF-8.
func TestDoctorMarks(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("no terminal: %v", err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	for _, c := range []struct {
		w    io.Writer
		env  map[string]string
		want string
	}{
		{terminal, map[string]string{"LANG": "de_DE.UTF-8"}, "✗"},
		{terminal, map[string]string{"LC_ALL": "C", "LANG": "de_DE.UTF-8"}, "ERROR   "},
		{terminal, nil, "ERROR   "},
		{new(bytes.Buffer), map[string]string{"LANG": "C.utf8"}, "ERROR   "},
	} {
		if got := marksFor(c.w, func(name string) string { return c.env[name] })[failed]; got != c.want {
			t.Errorf("%v: mark %q, want %q", c.env, got, c.want)
		}
	}
}
