package otlpexporter

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestEndpointForms holds the specification's forms, and ours.
func TestEndpointForms(t *testing.T) {
	type want struct {
		shown, url, target string
		secure             bool
	}
	for _, c := range []struct {
		name string
		env  []string
		want want
	}{
		{"nothing set", nil, want{shown: "http://localhost:4318/v1/traces", url: "http://localhost:4318/v1/traces"}},
		{"empty is not set", []string{EnvEndpoint + "= ", EnvTracesEndpoint + "="}, want{
			shown: "http://localhost:4318/v1/traces", url: "http://localhost:4318/v1/traces",
		}},
		{"base", []string{EnvEndpoint + "=https://collector:4318"}, want{
			shown: "https://collector:4318/v1/traces", url: "https://collector:4318/v1/traces", secure: true,
		}},
		{"base with a path", []string{EnvEndpoint + "=https://acme.example/otlp/"}, want{
			shown: "https://acme.example/otlp/v1/traces", url: "https://acme.example/otlp/v1/traces", secure: true,
		}},
		{"base with what a path may be", []string{EnvEndpoint + "=http://acme.example/a%2Fb?key=s3cret"}, want{
			shown: "http://acme.example/a%2Fb/v1/traces?…", url: "http://acme.example/a%2Fb/v1/traces?key=s3cret",
		}},
		{"upper case", []string{EnvEndpoint + "=HTTPS://Acme.example"}, want{
			shown: "https://Acme.example/v1/traces", url: "https://Acme.example/v1/traces", secure: true,
		}},
		{"traces' own is used as it is", []string{EnvTracesEndpoint + "=http://acme.example/in?x=1", EnvEndpoint + "=http://other"}, want{
			shown: "http://acme.example/in?…", url: "http://acme.example/in?x=1",
		}},
		{"traces' own without a path", []string{EnvTracesEndpoint + "=http://acme.example:4318"}, want{
			shown: "http://acme.example:4318/", url: "http://acme.example:4318/",
		}},
		{"credentials", []string{EnvEndpoint + "=http://user:s3cret@acme.example"}, want{
			shown: "http://acme.example/v1/traces", url: "http://acme.example/v1/traces",
		}},
		{"IPv6", []string{EnvEndpoint + "=http://[::1]:4318"}, want{shown: "http://[::1]:4318/v1/traces", url: "http://[::1]:4318/v1/traces"}},

		{"gRPC, nothing set", []string{EnvProtocol + "=grpc"}, want{shown: "http://localhost:4317", target: "localhost:4317"}},
		{"gRPC, https", []string{EnvProtocol + "=grpc", EnvEndpoint + "=https://acme.example"}, want{
			shown: "https://acme.example:443", target: "acme.example:443", secure: true,
		}},
		{"gRPC, the scheme wins over insecure", []string{EnvProtocol + "=grpc", EnvEndpoint + "=https://acme.example:1", EnvInsecure + "=true"}, want{
			shown: "https://acme.example:1", target: "acme.example:1", secure: true,
		}},
		{"gRPC, http", []string{EnvTracesProtocol + "=grpc", EnvTracesEndpoint + "=http://acme.example"}, want{
			shown: "http://acme.example:80", target: "acme.example:80",
		}},
		{"gRPC, host and port", []string{EnvProtocol + "=grpc", EnvEndpoint + "=acme.example:4317"}, want{
			shown: "acme.example:4317", target: "acme.example:4317", secure: true,
		}},
		{"gRPC, host and port, insecure", []string{EnvProtocol + "=grpc", EnvEndpoint + "=127.0.0.1:4317", EnvInsecure + "=TRUE"}, want{
			shown: "127.0.0.1:4317", target: "127.0.0.1:4317",
		}},
		{"gRPC, traces' own insecure", []string{
			EnvProtocol + "=grpc", EnvEndpoint + "=a:1", EnvInsecure + "=true", EnvTracesInsecure + "=false",
		}, want{shown: "a:1", target: "a:1", secure: true}},
		{"gRPC, socket", []string{EnvProtocol + "=grpc", EnvEndpoint + "=unix:///run/otlp.sock"}, want{
			shown: "unix:///run/otlp.sock", target: "unix:///run/otlp.sock",
		}},
		{"gRPC, dns", []string{EnvProtocol + "=grpc", EnvEndpoint + "=dns:///acme.example:4317"}, want{
			shown: "dns:///acme.example:4317", target: "dns:///acme.example:4317", secure: true,
		}},
	} {
		got, err := readSettings(env(c.env...), Defaults{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		e := want{got.endpoint.shown, "", got.endpoint.target, got.endpoint.secure}
		if got.endpoint.url != nil {
			e.url = got.endpoint.url.String()
		}
		if e != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, e, c.want)
		}
	}
}

// TestWrongSettings compares whole texts: operators read them.
func TestWrongSettings(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing, pipe := filepath.Join(dir, "missing.pem"), filepath.Join(dir, "pipe.pem")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{EnvEndpoint + "=collector:4318"}, EnvEndpoint + `: "collector:4318" has no scheme: ` +
			`want http://collector:4318, or https://collector:4318 if the receiver has TLS`},
		{[]string{EnvTracesEndpoint + "=user:s3cret@collector"}, EnvTracesEndpoint + `: "collector" has no scheme: ` +
			`want http://collector, or https://collector if the receiver has TLS`},
		{[]string{EnvEndpoint + "=grpc://collector:4317"}, EnvEndpoint + `: "grpc://collector:4317" has the scheme "grpc": ` +
			`want http or https, or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc for the endpoint forms of gRPC`},
		{[]string{EnvEndpoint + "=http://"}, EnvEndpoint + `: "http://" has no host: want http://HOST:PORT`},
		{[]string{EnvEndpoint + "=http://:4318"}, EnvEndpoint + `: "http://:4318" has no host: want http://HOST:PORT`},
		{[]string{EnvEndpoint + "=http://a:70000"}, EnvEndpoint + `: "http://a:70000" has the port 70000: want 1 to 65535`},
		{[]string{EnvEndpoint + "=http://user:s3cret@a:b"}, EnvEndpoint + `: "http://a:b" is not a URL: want http://HOST:PORT or https://HOST:PORT`},
		{[]string{EnvEndpoint + "=http://a/#x"}, EnvEndpoint + `: "http://a/#x" has a fragment: want a URL without #`},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=collector"}, EnvEndpoint + `: "collector": ` +
			`want http://HOST:PORT, https://HOST:PORT or HOST:PORT; OTLP/gRPC is usually port 4317`},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=http://a:4317/v1/traces"}, EnvEndpoint + `: "http://a:4317/v1/traces" ` +
			`has a path, which gRPC does not: want http://a:4317, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf`},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=ftp://a:4317"}, EnvEndpoint + `: "ftp://a:4317" has the scheme "ftp": ` +
			`want http or https, or dns, passthrough, unix or unix-abstract of gRPC`},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=unix://"}, EnvEndpoint + `: "unix://" names nothing: want unix:///PATH`},
		{[]string{EnvTracesProtocol + "=http"}, EnvTracesProtocol + `: "http" is not known: want http/protobuf, http/json or grpc`},
		{[]string{EnvCompression + "=zstd"}, EnvCompression + `: "zstd" is not known: want gzip or none`},
		{[]string{EnvTimeout + "=10s"}, EnvTimeout + `: "10s": want whole milliseconds, 1 to 3600000, such as 10000`},
		{[]string{EnvTracesTimeout + "=0"}, EnvTracesTimeout + `: "0": want whole milliseconds, 1 to 3600000, such as 10000`},
		{[]string{EnvInsecure + "=yes"}, EnvInsecure + `: "yes" is not known: want true or false`},
		{[]string{EnvHeaders + "=Bearer s3cret"}, EnvHeaders + `: item 1 is not name=value: want items as authorization=Bearer%20abc, ` +
			`separated by commas, with a comma within a value as %2C (the item is not shown, because it may be a secret)`},
		{[]string{EnvHeaders + "=a=b,x y=s3cret"}, EnvHeaders + `: item 2 is not name=value: want items as authorization=Bearer%20abc, ` +
			`separated by commas, with a comma within a value as %2C (the item is not shown, because it may be a secret)`},
		{[]string{EnvTracesHeaders + "=a=s3cret%zz"}, EnvTracesHeaders + `: the value of "a" is not percent-encoded: write % as %25`},
		{[]string{EnvHeaders + "=a=s3cret%0Ab"}, EnvHeaders + `: header "a": the value has control characters, such as the end of a line`},
		{[]string{EnvProtocol + "=grpc", EnvHeaders + "=a=s3cr%C3%A9t"}, EnvHeaders + `: header "a": ` +
			`the value has characters beyond ASCII, which gRPC allows only in headers that end in -bin`},
		{[]string{EnvEndpoint + "=https://a", EnvCertificate + "=" + missing}, EnvCertificate + `: read the authorities to trust: ` +
			`stat ` + missing + `: no such file or directory`},
		{[]string{EnvEndpoint + "=https://a", EnvCertificate + "=" + dir}, EnvCertificate + `: read the authorities to trust: "` + dir + `" is not a regular file (d---------): ` +
			`want a file in PEM`},
		{[]string{EnvEndpoint + "=https://a", EnvCertificate + "=" + pipe}, EnvCertificate + `: read the authorities to trust: "` + pipe + `" is not a regular file (p---------): ` +
			`want a file in PEM`},
		{[]string{EnvEndpoint + "=https://a", EnvClientCertificate + "=" + empty, EnvClientKey + "=/dev/zero"}, EnvClientCertificate +
			`: certificate "` + empty + `" with key "/dev/zero" of ` + EnvClientKey + `: "/dev/zero" is not a regular file (Dc---------): want a file in PEM`},
		{[]string{EnvEndpoint + "=https://a", EnvCertificate + "=" + empty}, EnvCertificate + `: "` + empty + `" has no certificate: ` +
			`want PEM, with lines of -----BEGIN CERTIFICATE-----`},
		{[]string{EnvEndpoint + "=https://a", EnvTracesClientCertificate + "=" + empty}, EnvTracesClientCertificate +
			`: is set, but OTEL_EXPORTER_OTLP_CLIENT_KEY is not: set both or none`},
		{[]string{EnvEndpoint + "=https://a", EnvClientKey + "=" + empty}, EnvClientKey +
			`: is set, but OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not: set both or none`},
		{[]string{EnvEndpoint + "=https://a", EnvClientKey + "=" + empty, EnvClientCertificate + "=" + missing}, EnvClientCertificate +
			`: certificate "` + missing + `" with key "` + empty + `" of ` + EnvClientKey + `: stat ` + missing + `: no such file or directory`},
		{[]string{EnvEndpoint + "=a", EnvCompression + "=b", EnvTimeout + "=c"}, EnvEndpoint + `: "a" has no scheme: ` +
			"want http://a, or https://a if the receiver has TLS\n" + EnvCompression + `: "b" is not known: want gzip or none` + "\n" +
			EnvTimeout + `: "c": want whole milliseconds, 1 to 3600000, such as 10000`},
	} {
		_, err := New(t.Context(), env(c.env...))
		if err == nil {
			t.Errorf("%q: no error, want %s", c.env, c.want)
			continue
		}
		if got := err.Error(); got != c.want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.env, got, c.want)
		}
		if strings.Contains(err.Error(), "s3cr") {
			t.Errorf("%q: the error shows a secret: %v", c.env, err)
		}
	}
}

// TestWhichCounts: traces' own variable, the general one, the document, the
// plugin's default.
func TestWhichCounts(t *testing.T) {
	document := `exporter:
  protocol: grpc
  endpoint: http://document:1
  headers: {Doc: d, X-Both: document}
  compression: gzip
  timeout: 3s
  insecure: false
`
	defaults := Defaults{Protocol: "grpc", Endpoint: "http://default:2", Headers: map[string]string{"x-both": "default", "X-Own": "own"}}
	type want struct {
		Protocol, Endpoint, From, Headers, HeadersFrom string
		Gzip                                           bool
		Timeout                                        string
	}
	for _, c := range []struct {
		name     string
		document string
		env      []string
		want     want
	}{
		{"defaults", "", nil, want{
			"grpc", "http://default:2", "default of the plugin", "x-both=default x-own=own", EnvHeaders, false, "10s",
		}},
		{"document", document, nil, want{
			"grpc", "http://document:1", "exporter.endpoint", "doc=d x-both=document x-own=own", "exporter.headers", true, "3s",
		}},
		{"variables", document, []string{
			EnvProtocol + "=http/protobuf", EnvEndpoint + "=http://general", EnvHeaders + "=X-BOTH=v%2C1, y=%20z ,,", EnvCompression + "=none", EnvTimeout + "=1500",
		}, want{
			"http/protobuf", "http://general/v1/traces", EnvEndpoint, "x-both=v,1 x-own=own y=z", EnvHeaders, false, "1.5s",
		}},
		{"traces' own", document, []string{
			EnvProtocol + "=thrift", EnvEndpoint + "=nonsense", EnvHeaders + "=x-a=1", EnvCompression + "=zstd", EnvTimeout + "=x",
			EnvTracesProtocol + "=http/protobuf", EnvTracesEndpoint + "=http://traces/p", EnvTracesHeaders + "=x-b=2",
			EnvTracesCompression + "=gzip", EnvTracesTimeout + "=7",
		}, want{
			"http/protobuf", "http://traces/p", EnvTracesEndpoint, "x-b=2 x-both=default x-own=own", EnvTracesHeaders, true, "7ms",
		}},
	} {
		s := env(c.env...)
		s.Config = []byte(c.document)
		got, err := readSettings(s, defaults)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		have := want{
			got.protocol, got.endpoint.shown, got.endpoint.from, pairs(got.headers), got.headersFrom, got.gzip, got.timeout.String(),
		}
		if diff := cmp.Diff(c.want, have); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func pairs(m map[string]string) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		list = append(list, name+"="+m[name])
	}
	return strings.Join(list, " ")
}

// TestWarnings: valid settings that are seldom intended.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{EnvInsecure + "=true"}, EnvInsecure + ": applies only to grpc endpoints without http:// or https://; " +
			"the scheme of http://localhost:4318/v1/traces decides"},
		{[]string{EnvCertificate + "=x"}, EnvCertificate + ": is not used: http://localhost:4318/v1/traces has no TLS; write https://"},
		{[]string{EnvEndpoint + "=http://a:4317"}, EnvEndpoint + ": http://a:4317/v1/traces: port 4317 is usually OTLP/gRPC: " +
			"set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, or use port 4318"},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=http://a:4318"}, EnvEndpoint + ": http://a:4318: port 4318 is usually OTLP/HTTP: " +
			"set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, or use port 4317"},
		{[]string{EnvTracesEndpoint + "=http://a"}, EnvTracesEndpoint + ": http://a/: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is used as it is, " +
			"and most receivers want /v1/traces at its end; OTEL_EXPORTER_OTLP_ENDPOINT gets that appended"},
		{[]string{EnvEndpoint + "=http://a/v1/traces"}, EnvEndpoint + ": http://a/v1/traces/v1/traces: /v1/traces is appended to " + EnvEndpoint + ": " +
			"omit it there, or use OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		{[]string{EnvHeaders + "=x-key="}, EnvHeaders + `: header "x-key" has an empty value`},
		{[]string{EnvHeaders + "=Content-Type=text/plain"}, EnvHeaders + `: header "content-type" is set by the client and is ignored`},
		{[]string{EnvProtocol + "=grpc", EnvHeaders + "=grpc-timeout=1S"}, EnvHeaders + `: header "grpc-timeout" is set by the client and is ignored`},
		{[]string{EnvProtocol + "=grpc", EnvEndpoint + "=unix:/run/a", EnvTimeout + "=1"}, ""},
	} {
		s := env(c.env...)
		var got []string
		s.Warn = func(path, text string) { got = append(got, path+": "+text) }
		if _, err := readSettings(s, Defaults{}); err != nil {
			t.Errorf("%q: %v", c.env, err)
		}
		if all := strings.Join(got, "\n"); all != c.want {
			t.Errorf("%q:\ngot  %s\nwant %s", c.env, all, c.want)
		}
	}
}

func TestStartIsAnnounced(t *testing.T) {
	var log bytes.Buffer
	s := env(EnvEndpoint+"=https://user:s3cret@acme.example?key=s3cret", EnvHeaders+"=x-key=s3cret,x-b=s3cret", EnvCompression+"=gzip",
		"HTTPS_PROXY=http://me:s3cret@proxy.example:3128")
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	open(t, s)
	_, got, _ := strings.Cut(log.String(), "msg=")
	want := `"spans are sent by OTLP" endpoint=https://acme.example/v1/traces?… from=OTEL_EXPORTER_OTLP_ENDPOINT protocol=http/protobuf compression=gzip ` +
		`tls="system's authorities" timeout=10s headers="authorization x-b x-key" proxy=http://proxy.example:3128` + "\n"
	if got != want {
		t.Errorf("log is\n%swant\n%s", got, want)
	}
}

// TestPatternsHaveAllVariables: a variable that is read and not declared is never
// granted.
func TestPatternsHaveAllVariables(t *testing.T) {
	patterns := EnvPatterns()
	asked := map[string]bool{}
	s := env()
	s.Getenv = func(name string) string {
		asked[name] = true
		return ""
	}
	if _, err := readSettings(s, Defaults{}); err != nil {
		t.Fatal(err)
	}
	declared := func(name string) bool {
		for _, p := range patterns {
			if prefix, many := strings.CutSuffix(p, "*"); p == name || many && strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	}
	own := 0
	for name := range asked {
		if strings.HasPrefix(name, "OTEL_") {
			own++
			if !declared(name) {
				t.Errorf("%s is read and not declared", name)
			}
		}
	}
	if own != 18 {
		t.Errorf("%d variables are read, want 18: %v", own, asked)
	}
	for _, other := range []string{"OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"} {
		if declared(other) {
			t.Errorf("%s is declared: it is of another signal", other)
		}
	}
}
