package pluginsdk_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
	"github.com/servetrace/servetrace/pluginsdk"
)

func TestTerminateDrainsAnExportInFlight(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		answers := make(chan error, 1)
		go func() {
			_, err := r.traces.Export(t.Context(), named("slow"))
			answers <- err
		}()
		r.stdout.await(t, "begun\n")
		r.terminate()
		if err := receive(t, answers, "the answer to the Export in flight"); err != nil {
			t.Errorf("Export in flight: %v", err)
		}
		if err := r.wait(); err != nil {
			t.Errorf("end: %v", err)
		}
		if got, want := r.stdout.String(), "begun\nflushed\nshut down\n"; got != want {
			t.Errorf("exporter saw %q, want %q", got, want)
		}
		r.stderr.await(t, `"@message":"plugin stops","reason":"asked to end"`)
	})
}

func TestShutdownTellsALongExportToGiveUp(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		answers := make(chan error, 1)
		go func() {
			_, err := r.traces.Export(t.Context(), named("until told"))
			answers <- err
		}()
		r.stdout.await(t, "begun\n")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := r.lifecycle.Shutdown(ctx, &pluginv1.ShutdownRequest{}); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if err := receive(t, answers, "the answer"); codeOf(err) != "UNAVAILABLE" {
			t.Errorf("Export answers %v, want UNAVAILABLE", err)
		}
	})
}

func TestEndOfStdinEndsThePlugin(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.configure(t, nil)
		r.closeStdin()
		if err := r.wait(); err != nil {
			t.Errorf("end: %v", err)
		}
		if got, want := r.stdout.String(), "flushed\nshut down\n"; got != want {
			t.Errorf("exporter saw %q, want %q", got, want)
		}
		r.stderr.await(t, "without shutdown")
	})
}

func TestEndWithoutConfigure(t *testing.T) {
	forEachKind(t, func(t *testing.T, r *running) {
		r.terminate()
		if err := r.wait(); err != nil {
			t.Errorf("end: %v", err)
		}
		if got := r.stdout.String(); got != "" {
			t.Errorf("an exporter that was never built said %q", got)
		}
	})
}

func TestSocketFolderOfItsOwnIsRemoved(t *testing.T) {
	dir, err := os.MkdirTemp("", "own")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	t.Setenv("TMPDIR", dir)
	r := startRun(t, testSpec, wire.EnvSocketDir+"=")
	folder := filepath.Dir(r.socket)
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("folder %q is %v, %v; want mode 0700", folder, info, err)
	}
	r.configure(t, nil)
	r.closeStdin()
	if err := r.wait(); err != nil {
		t.Errorf("end: %v", err)
	}
	if _, err := os.Stat(folder); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %q is still there: %v", folder, err)
	}
}

func TestInterruptIsIgnored(t *testing.T) {
	r := startMain(t)
	r.configure(t, nil)
	for range 3 {
		if err := r.process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.traces.Export(t.Context(), named("fine")); err != nil {
		t.Errorf("Export after SIGINT: %v", err)
	}
	r.terminate()
	if err := r.wait(); err != nil {
		t.Errorf("end: %v", err)
	}
}

// TestNoiseDoesNotBlock prints more to descriptor 1 than a pipe holds, while the plugin's
// standard output is not read.
func TestNoiseDoesNotBlock(t *testing.T) {
	r := startMain(t)
	r.configure(t, nil)
	if _, err := r.traces.Export(t.Context(), named("noise")); err != nil {
		t.Fatal(err)
	}
	r.stderr.await(t, "a print in an exporter\n")
	r.stderr.await(t, strings.Repeat("x", 70<<10)+"\n")
	if got := r.stdout.String(); got != "" {
		t.Errorf("the host's standard output got %q", got)
	}
}

func TestBadSharedDescriptorIsReported(t *testing.T) {
	for _, value := range []string{"1", "99", "three"} {
		t.Run(value, func(t *testing.T) {
			r := startMain(t, wire.EnvStdoutFD+"="+value)
			r.configure(t, nil)
			r.stderr.await(t, `"variable":"SERVETRACE_STDOUT_FD","value":"`+value+`"`)
			if _, err := r.traces.Export(t.Context(), named("who")); err != nil {
				t.Fatal(err)
			}
			r.stderr.await(t, `id "" attempt 1`) // printed to the log instead
		})
	}
}

func TestVersionMismatchIsSaidByThePlugin(t *testing.T) {
	r := startMain(t, wire.EnvProtocolVersions+"=7,8")
	if !strings.HasPrefix(r.handshake, "1|1|unix|") {
		t.Errorf("handshake is %q, want the plugin's own version", r.handshake)
	}
	r.stderr.await(t, `"@message":"host and plugin have no protocol version in common: build the plugin with a matching SDK","host":"7,8","plugin":"1"`)
}

func TestMultiplexedBrokerIsDeclined(t *testing.T) {
	r := startMain(t, wire.EnvMultiplex+"=true")
	if !strings.HasSuffix(r.handshake, "|grpc||false") {
		t.Errorf("handshake is %q, want a seventh field that says false", r.handshake)
	}
}

// TestByHand runs the binary as a person would, and as a host with another
// cookie would.
func TestByHand(t *testing.T) {
	for _, c := range []struct {
		name       string
		environ    []string
		args       []string
		code       int
		stdout     []string
		stderr     []string
		emptyOther bool
	}{
		{name: "no cookie", code: 1, stderr: []string{"test 1.2.3: does what the names of spans say", "SERVE_TRACING_EXPORTER_PLUGIN=/"}},
		{name: "wrong cookie", environ: []string{wire.CookieKey + "=other"}, code: 1, stderr: []string{"SERVE_TRACING_EXPORTER_PLUGIN=/"}},
		{name: "mistyped", args: []string{"--listne", "x"}, code: 1, stderr: []string{`argument "--listne" is unknown: try --help`}},
		{name: "version", args: []string{"--version"}, stdout: []string{"test 1.2.3\n"}},
		{name: "version under a host", environ: []string{wire.CookieKey + "=" + wire.CookieValue}, args: []string{"--version"}, stdout: []string{"test 1.2.3\n"}},
		{name: "help", args: []string{"--help"}, stdout: []string{"SERVE_TRACING_EXPORTER_PLUGIN=/", "TEST_*", "--describe"}},
		{name: "describe", args: []string{"--describe"}, stdout: []string{`"name": "test"`, `"TEST_*"`, `"max_batch_spans": 100`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], c.args...)
			cmd.Env = slices.Concat(c.environ, childEnviron(t), []string{envMode + "=plugin"})
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d (%v), want %d", code, err, c.code)
			}
			for _, stream := range []struct {
				name, got string
				want      []string
			}{{"stdout", stdout.String(), c.stdout}, {"stderr", stderr.String(), c.stderr}} {
				for _, text := range stream.want {
					if !strings.Contains(stream.got, text) {
						t.Errorf("%s lacks %q:\n%s", stream.name, text, stream.got)
					}
				}
				if len(stream.want) == 0 && stream.got != "" {
					t.Errorf("%s is not empty:\n%s", stream.name, stream.got)
				}
			}
		})
	}
}

func TestRunErrors(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := os.Mkdir(long, 0o700); err != nil {
		t.Fatal(err)
	}
	cookie := wire.CookieKey + "=" + wire.CookieValue
	for _, c := range []struct {
		name string
		env  pluginsdk.Env
		spec pluginsdk.Spec
		want string
	}{
		{"not hosted", pluginsdk.Env{}, testSpec, "not started by a servetrace host"},
		{"no handshake", pluginsdk.Env{Environ: []string{cookie}}, testSpec, "no writer for the handshake: set Env.Handshake"},
		{
			"AutoMTLS", pluginsdk.Env{Environ: []string{cookie, wire.EnvClientCert + "=x"}}, testSpec,
			"host asks for AutoMTLS (PLUGIN_CLIENT_CERT), which a plugin on a private Unix socket does not speak: switch it off in the host",
		},
		{
			"handshake is not read",
			pluginsdk.Env{Environ: []string{cookie}, Handshake: closedWriter{}}, testSpec, "write handshake: io: read/write on closed pipe",
		},
		{
			"folder with a long name",
			pluginsdk.Env{Environ: []string{cookie, wire.EnvSocketDir + "=" + long}, Handshake: io.Discard}, testSpec,
			"the system takes 103: use a shorter folder",
		},
		{
			"faulty Spec", pluginsdk.Env{}, pluginsdk.Spec{
				Name: "My Plugin", Env: []string{"A_*", "DD_*"}, Limits: pluginsdk.Limits{MaxConcurrency: -1},
				Processors: []pluginsdk.NewProcessor{nil},
			},
			`plugin "My Plugin": name "My Plugin": want lower-case letters, digits and dashes, beginning with a letter
processor 1 is nil
variable "A_*": want a name, or a prefix of three characters or more that ends in an underscore, and a star
limit MaxConcurrency is -1: want 0 (the host's default) to 2147483647`,
		},
		{
			"Spec without work", pluginsdk.Env{}, pluginsdk.Spec{Name: "idle"},
			`plugin "idle": no exporter and no processors: set Spec.Exporter, or Spec.Processors for a processor plugin`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := pluginsdk.Run(t.Context(), c.env, c.spec)
			if err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("error is %v\nwant %s", err, c.want)
			}
		})
	}
	if err := pluginsdk.Run(t.Context(), pluginsdk.Env{}, testSpec); !errors.Is(err, pluginsdk.ErrNotHosted) {
		t.Errorf("error is %v, want ErrNotHosted", err)
	}
}

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestDeathOfTheHost kills a host that leads no plugin by its standard input,
// and expects the plugin and the plugin's own child to go.
func TestDeathOfTheHost(t *testing.T) {
	for _, c := range []struct{ name, stdin string }{
		{"watched by parent", os.DevNull},
		{"watched by standard input", "pipe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			alive, held, err := os.Pipe() // plugin and child hold the writing end
			if err != nil {
				t.Fatal(err)
			}
			defer alive.Close()
			cmd := exec.Command(os.Args[0], c.stdin)
			cmd.Env = slices.Concat(hostEnviron(t), childEnviron(t), []string{envMode + "=host"})
			cmd.ExtraFiles = []*os.File{held}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = held.Close()
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "1|1|unix|") {
				t.Errorf("handshake is %q, %v", line, err)
			}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			ended := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, alive)
				ended <- err
			}()
			if err := receive(t, ended, "plugin and child to end"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A folder for sockets that an operator has set for many programs does not mark the
// plugin's children: other processes with it in their environment stay.
func TestDeathOfTheHostSparesOthers(t *testing.T) {
	alive, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	environ := hostEnviron(t)
	other := exec.Command("cat")
	other.Env = environ
	in, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(os.Args[0], "pipe")
	host.Env = slices.Concat(environ, childEnviron(t), []string{envMode + "=host"})
	host.ExtraFiles = []*os.File{held}
	stdout, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(other.Start(), host.Start()); err != nil {
		t.Fatal(err)
	}
	_ = held.Close()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, "1|1|unix|") {
		t.Errorf("handshake is %q, %v", line, err)
	}
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = host.Wait()
	if _, err := io.Copy(io.Discard, alive); err != nil { // ends with the plugin and its child
		t.Error(err)
	}
	if _, err := in.Write([]byte("there\n")); err != nil {
		t.Errorf("the other process: %v", err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "there\n" {
		t.Errorf("the other process says %q, %v", line, err)
	}
	_ = in.Close()
	_ = other.Wait() // its end is that of its input
}

// hostUntilKilled starts this binary as a plugin that leads a process group,
// passes on its handshake, and waits to be killed.
func hostUntilKilled() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envMode+"=family")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "alive")}
	if os.Args[1] == "pipe" {
		if _, err := cmd.StdinPipe(); err != nil {
			os.Exit(1)
		}
	}
	if err := cmd.Start(); err != nil {
		os.Exit(1)
	}
	_ = cmd.Wait()
}

// startChild starts a child that holds descriptor 3 and would stay.
func startChild() {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), envMode+"=child")
	child.ExtraFiles = []*os.File{os.NewFile(3, "alive")}
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
