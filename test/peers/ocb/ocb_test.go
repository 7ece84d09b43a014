// Package ocb holds the components of contrib/pluginexporter in a Collector that the
// OpenTelemetry Collector Builder has built. It has tests only.
package ocb

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/servetrace/servetrace/test/peers/peer"
	"github.com/servetrace/servetrace/test/testplugin"
)

// page has the manifest and the configuration.
const page = "../../../docs/how-to/run-plugins-in-a-collector.md"

// ofPage returns the block of the page that begins with a key, with replacements. Each must
// occur.
func ofPage(t *testing.T, key string, replacements ...string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml [^\n]*\n(" + key + ":.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatalf("%s has no block with %s", page, key)
	}
	for i := 0; i < len(replacements); i += 2 {
		if !strings.Contains(string(block[1]), replacements[i]) {
			t.Fatalf("the block of %s lacks %q", page, replacements[i])
		}
	}
	return strings.NewReplacer(replacements...).Replace(string(block[1]))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// buildCollector builds the Collector of the page in a folder, and returns its path. Its
// packages were compiled for the peer otelcol.
func buildCollector(t *testing.T, folder string) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "builder.yaml"), ofPage(t, "dist", "/path/to/servetrace", root))
	for _, args := range [][]string{
		{".", "run", builder(t), "--config", "builder.yaml", "--skip-compilation"},
		{"otelcol-plugins", "build", "-trimpath", "-ldflags=-s -w", "-o", "../collector", "."},
	} {
		cmd := exec.CommandContext(t.Context(), "go", args[1:]...)
		cmd.Dir = filepath.Join(folder, args[0])
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-buildvcs=false", "PWD="+cmd.Dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", cmd, err, out)
		}
	}
	return filepath.Join(folder, "collector")
}

// builder returns the package of the builder that the page names, with its version.
func builder(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`go\.opentelemetry\.io/collector/cmd/builder@\S+`).Find(text)
	if name == nil {
		t.Fatalf("%s does not name the builder", page)
	}
	return string(name)
}

// collector is a process of the built Collector.
type collector struct {
	address     string // for OTLP/gRPC
	log, output string // paths
}

// forPlugin returns the configuration of the page for a plugin, which is a path or an
// address.
func forPlugin(t *testing.T, plugin string) string {
	t.Helper()
	settings := ofPage(t, "receivers", "/opt/traces/mine     # or a list: [otlp, /opt/traces/mine]", plugin, "plugin_watch: 1s", "plugin_watch: 100ms")
	if strings.HasPrefix(plugin, "unix://") {
		settings = regexp.MustCompile(`(?s)    plugins:\n.*value: eu\}\]\}\n`).ReplaceAllString(settings, "")
	}
	return settings
}

// start starts the Collector with a configuration like the page's, and returns when it
// takes spans.
func start(t *testing.T, program, settings string, environ ...string) *collector {
	t.Helper()
	folder := t.TempDir()
	c := &collector{address: freeAddress(t), log: filepath.Join(folder, "log"), output: filepath.Join(folder, "output")}
	settings = strings.ReplaceAll(settings, "localhost:4317", c.address)
	write(t, filepath.Join(folder, "collector.yaml"), strings.Replace(settings, "service:\n", "service:\n  telemetry: {metrics: {level: none}}\n", 1))
	cmd := exec.Command(program, "--config", filepath.Join(folder, "collector.yaml"))
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}, environ...)
	for path, to := range map[string]*io.Writer{c.log: &cmd.Stderr, c.output: &cmd.Stdout} {
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = file.Close() }() // the process has its own descriptor
		*to = file
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the Collector ends with %v", err)
		}
		if t.Failed() {
			t.Logf("log of the Collector:\n%s", read(t, c.log))
		}
	})
	testplugin.WaitFor(t, "the Collector", func() bool {
		conn, err := net.Dial("tcp", c.address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return c
}

// freeAddress returns an address of this machine with a free port.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// send sends 200 traces of four spans by telemetrygen.
func (c *collector) send(t *testing.T) {
	t.Helper()
	peer.Telemetrygen(t, c.address, false, "--traces", "200", "--child-spans", "3")
}

// logged returns the number in the last match of a pattern in the log, or zero.
func (c *collector) logged(t *testing.T, pattern string) int {
	t.Helper()
	found := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, c.log), -1)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[len(found)-1][1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// arrived returns the number of different spans at a back end. Each must have the attribute
// that the page's configuration inserts, if edited.
func arrived(t *testing.T, sink *peer.Collector, edited bool) int {
	t.Helper()
	ids := map[string]bool{}
	for _, rs := range sink.Spans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				ids[string(span.GetSpanId())] = true
				if found := strings.Contains(span.String(), `"region"`); found != edited {
					t.Fatalf("edited %v: %v", edited, span)
				}
			}
		}
	}
	return len(ids)
}

// printed returns the number of spans that the plugin console has printed.
func (c *collector) printed(t *testing.T) int {
	t.Helper()
	return strings.Count(read(t, c.output), `"parent_id"`)
}

// install puts a plugin into place as an operator would: beside, then renamed.
func install(t *testing.T, plugin, path string) {
	t.Helper()
	text, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", text, 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// TestPluginsInACollector sends the spans of telemetrygen to a Collector with plugins: one
// that is killed, then replaced by another back end's, and one that is attached to.
func TestPluginsInACollector(t *testing.T) {
	sink := peer.StartCollector(t)
	folder, err := os.MkdirTemp("", "ocb") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	program := buildCollector(t, folder)
	endpoint := "OTEL_EXPORTER_OTLP_ENDPOINT=" + sink.HTTP()

	plugin := filepath.Join(folder, "mine")
	install(t, peer.Plugin(t, "otlp"), plugin)
	c := start(t, program, forPlugin(t, plugin), endpoint)
	c.send(t)
	testplugin.WaitFor(t, "800 spans", func() bool { return arrived(t, sink, true) == 800 })

	if err := syscall.Kill(c.logged(t, `plugin is ready.*"pid": ?(\d+)`), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.send(t)
	testplugin.WaitFor(t, "1600 spans in spite of kill -9", func() bool { return arrived(t, sink, true) == 1600 })

	install(t, peer.Plugin(t, "console"), plugin)
	testplugin.WaitFor(t, "the new plugin", func() bool { return c.logged(t, `plugin is being replaced.*"pid": ?(\d+)`) > 0 })
	c.send(t) // to the old plugin and the new
	testplugin.WaitFor(t, "2400 spans at both back ends", func() bool { return arrived(t, sink, true)+c.printed(t) == 2400 })
	testplugin.WaitFor(t, "the end of the old plugin", func() bool {
		old := c.logged(t, `plugin is replaced.*"old_pid": ?(\d+)`)
		return old > 0 && testplugin.Gone(old)
	})
	before := arrived(t, sink, true)
	printed := c.printed(t)
	c.send(t)
	testplugin.WaitFor(t, "800 spans more at the new back end", func() bool { return c.printed(t) == printed+800 })
	if got := arrived(t, sink, true); got != before {
		t.Errorf("the old back end has %d spans more", got-before)
	}

	t.Run("attached", func(t *testing.T) { attached(t, program, filepath.Join(folder, "sock")) })
	t.Run("processor", func(t *testing.T) { processor(t, program, filepath.Join(folder, "edits")) })
}

// processor sends spans through a processor plugin in a pipeline, which is killed, then
// replaced by a new file. The plugin behind it gets edited spans only.
func processor(t *testing.T, program, plugin string) {
	sink := peer.StartCollector(t)
	install(t, peer.Plugin(t, "processors"), plugin)
	settings := regexp.MustCompile(`(?s)    plugins:\n.*value: eu\}\]\}\n`).ReplaceAllString(forPlugin(t, peer.Plugin(t, "otlp")), "")
	settings = strings.Replace(settings, "exporters: [", "processors: [servetraceplugin], exporters: [", 1)
	settings += ofPage(t, "processors", "/opt/traces/mine    # or a list: [tenant, /opt/traces/mine]", plugin, "mine:", "edits:", "plugin_watch: 1s", "plugin_watch: 100ms")
	c := start(t, program, settings, "OTEL_EXPORTER_OTLP_ENDPOINT="+sink.HTTP())
	c.send(t)
	testplugin.WaitFor(t, "800 spans", func() bool { return arrived(t, sink, true) == 800 })

	ready := `plugin is ready.*"plugin": ?"edits".*"pid": ?(\d+)`
	if err := syscall.Kill(c.logged(t, ready), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.send(t)
	testplugin.WaitFor(t, "1600 spans in spite of kill -9", func() bool { return arrived(t, sink, true) == 1600 })

	install(t, peer.Plugin(t, "processors"), plugin)
	testplugin.WaitFor(t, "the new plugin", func() bool { return c.logged(t, `plugin is being replaced.*"pid": ?(\d+)`) > 0 })
	c.send(t) // through the old plugin and the new
	testplugin.WaitFor(t, "2400 spans", func() bool { return arrived(t, sink, true) == 2400 })
	testplugin.WaitFor(t, "the end of the old plugin", func() bool { return c.logged(t, `plugin is replaced.*"old_pid": ?(\d+)`) > 0 })
}

// attached sends spans to a plugin that another program has started.
func attached(t *testing.T, program, socket string) {
	sink := peer.StartCollector(t)
	cmd := exec.Command(peer.Plugin(t, "otlp"), "--listen", socket)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "OTEL_EXPORTER_OTLP_ENDPOINT=" + sink.HTTP()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	c := start(t, program, forPlugin(t, "unix://"+socket))
	c.send(t)
	testplugin.WaitFor(t, "800 spans", func() bool { return arrived(t, sink, false) == 800 })
}
