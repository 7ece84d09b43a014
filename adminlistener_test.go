package servetrace

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/serving"
)

// adminURL returns the URL of the admin listener in the log line "serving".
func adminURL(t *testing.T, log string) string {
	t.Helper()
	found := regexp.MustCompile(`\badmin=(http://\S+)`).FindStringSubmatch(log)
	if found == nil {
		t.Fatalf("the log does not say where the listener for operators is:\n%s", log)
	}
	return found[1]
}

// statusAt asks for the status; url is the page's.
func statusAt(t *testing.T, url string) admin.Status {
	t.Helper()
	_, body := get(t, url+".json")
	var status admin.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	return status
}

// The listener answers while the service drains: a request is in flight, and
// the stop waits for it.
func TestDrainCanBeWatched(t *testing.T) {
	p := startProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_ADMIN_PORT=0")
	url := adminURL(t, p.log.String())
	p.log.await(t, "plugin is ready")
	status := statusAt(t, url)
	if len(status.Plugins) != 1 || status.Plugins[0].State != "ready" || status.Process.PID != p.cmd.Process.Pid {
		t.Errorf("status %+v", status)
	}
	go func() { // ends with the service
		if resp, err := http.Get(p.url + "/hang"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	p.log.await(t, "hang has begun")
	if d := statusAt(t, url).Deployments; len(d) != 1 || d[0].App != "default" || d[0].Name != "D" || d[0].State != "HEALTHY" ||
		len(d[0].Replicas) != 2 || d[0].Replicas[1].State != "RUNNING" || d[0].Ongoing() != 1 || d[0].MaxQueuedRequests != -1 {
		t.Errorf("deployments %+v", d)
	}
	p.signal(syscall.SIGTERM)
	p.log.await(t, "msg=stopping")
	if during := statusAt(t, url); len(during.Plugins) != 1 || during.Plugins[0].State != "ready" || len(during.Deployments) != 1 {
		t.Errorf("during the drain: %+v", during)
	}
	<-time.After(2 * signalWindow) // a second one, not the first again
	p.signal(syscall.SIGTERM)
	p.wait()
}

// seen is a log that calls f for each line of this message.
type seen struct {
	slog.Handler
	message string
	f       func()
}

func (s seen) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == s.message {
		s.f()
	}
	return s.Handler.Handle(ctx, r)
}

// The listener is there until after the last plugin has ended.
func TestListenerOutlivesThePlugins(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := inProcess(t)
	cfg.Admin.Addr = "127.0.0.1:0"
	cfg.Host.Plugins = "console=" + link(t, t.TempDir(), "console")
	cfg.Host.StartTimeout, cfg.Host.StopTimeout = time.Minute, time.Minute
	text := newSyncBuffer()
	asked := false
	log := slog.New(seen{slog.NewTextHandler(text, nil), "stopped", func() {
		asked = true
		status := statusAt(t, adminURL(t, text.String()))
		if x := status.Plugins[0]; x.State != "stopped" || x.PID != 0 || status.Spans.Ended == 0 || x.Spans.Delivered != status.Spans.Ended {
			t.Errorf("after the end of the plugins: %+v", status)
		}
	}})
	ready := func(addr net.Addr) {
		if status, _ := get(t, "http://"+addr.String()); status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		cancel()
	}
	app := serving.NewApp("default", serving.NewDeployment("D", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})))
	if err := Run(ctx, cfg, []*serving.App{app}, WithReady(ready), WithLogger(log)); err != nil {
		t.Errorf("Run: %v", err)
	}
	if !asked {
		t.Errorf("spans were lost, or nothing was said:\n%s", text)
	}
	if resp, err := http.Get(adminURL(t, text.String())); err == nil {
		_ = resp.Body.Close()
		t.Error("the listener has outlived Run")
	}
}

func TestAdminAddressInUse(t *testing.T) {
	p := launchProc(t, "SERVE_TRACING_EXPORTER_PLUGIN=console", "SERVE_ADMIN_PORT="+takenPort(t))
	if code := p.wait(); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	log := p.log.String()
	if !strings.Contains(log, "address already in use: another process listens there; choose another port with SERVE_ADMIN_PORT") ||
		strings.Contains(log, "plugin is") || strings.Contains(log, "msg=serving") {
		t.Errorf("the log does not say why, or something was started:\n%s", log)
	}
}

func TestWrongAdminSettingsEndTheStart(t *testing.T) {
	p := launchProc(t, "SERVE_ADMIN_PORT=many", "SERVE_HTTP_PORT=many")
	if code := p.wait(); code != 1 || !strings.Contains(p.log.String(), `SERVE_ADMIN_PORT="many"`) || !strings.Contains(p.log.String(), `SERVE_HTTP_PORT="many"`) {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

// Signals during a reload are one more reload, and no signal waits for one.
func TestReloadsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var began []time.Duration
		origin := time.Now()
		r := startReloads(ofPlugins, func(ctx context.Context) error {
			mu.Lock()
			began = append(began, time.Since(origin))
			mu.Unlock()
			select {
			case <-time.After(time.Minute):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}, slog.New(slog.DiscardHandler))
		r.ask()
		synctest.Wait()
		for range 5 {
			r.ask()
		}
		if took := time.Since(origin); took != 0 {
			t.Errorf("asking took %v", took)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		mu.Lock()
		if len(began) != 2 || began[0] != 0 || began[1] != time.Minute {
			t.Errorf("reloads began at %v, want at 0s and 1m0s", began)
		}
		mu.Unlock()
		r.ask()
		synctest.Wait()
		before := time.Now()
		if err := r.stop(t.Context()); err != nil || time.Since(before) != 0 {
			t.Errorf("stop: %v after %v", err, time.Since(before))
		}
	})
}

// A reload that heeds nothing does not hold up the stop.
func TestReloadThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		log := newSyncBuffer()
		r := startReloads(ofPlugins, func(context.Context) error {
			<-release
			return errors.New("too late")
		}, slog.New(slog.NewTextHandler(log, nil)))
		r.ask()
		synctest.Wait()
		before := time.Now()
		if err := r.stop(t.Context()); err != nil || time.Since(before) != reloadGrace {
			t.Errorf("stop: %v after %v, want nil after %v", err, time.Since(before), reloadGrace)
		}
		close(release)
		synctest.Wait()
		if !strings.Contains(log.String(), "the stop continues without it") {
			t.Errorf("the log does not say so:\n%s", log)
		}
	})
}

// The result of a reload is in the log.
func TestReloadIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for want, err := range map[string]error{
			`msg="the reload of plugins has ended; the lines of each plugin have its result"`: nil,
			`msg="some plugins stay as they were" error="a stays"`:                            errors.New("a stays"),
			`msg="some plugins stay as they were" plugins="a, b" error="no folder"` + "\n": errors.Join(
				errors.Join(&host.PluginError{Plugin: "a", Op: "does not start", Err: errors.New("told")}, &host.PluginError{Plugin: "b", Op: "x", Err: errors.New("told")}),
				errors.New("no folder")),
		} {
			log := newSyncBuffer()
			r := startReloads(ofPlugins, func(context.Context) error { return err }, slog.New(slog.NewTextHandler(log, nil)))
			r.ask()
			synctest.Wait()
			if !strings.Contains(log.String(), want) {
				t.Errorf("no %q in:\n%s", want, log)
			}
			if err := r.stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Many SIGHUPs in a row do not hide the SIGTERM after them.
func TestHangUpsDoNotHideTheEnd(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP, syscall.SIGTERM)
	defer signal.Stop(heard)
	log := newSyncBuffer()
	ready := func(net.Addr) { // Run looks at signals when this has returned
		for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP, syscall.SIGHUP, syscall.SIGTERM} {
			if err := syscall.Kill(os.Getpid(), sig); err != nil {
				t.Error(err)
			}
			<-heard
		}
	}
	app := serving.NewApp("default", serving.NewDeployment("D", http.NotFoundHandler()))
	err := Run(ctx, inProcess(t), []*serving.App{app}, WithReady(ready), WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	if err != nil || !strings.Contains(log.String(), `because="terminated signal received"`) {
		t.Errorf("Run: %v\n%s", err, log)
	}
}

// Two settings that exclude each other are one error, before anything runs.
func TestAdminPortIsTheServicesPort(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want string // of the error; empty: none
	}{
		"the default":       {map[string]string{"SERVE_ADMIN_PORT": "8000"}, `SERVE_ADMIN_PORT="8000": SERVE_HTTP_PORT is the same port, and both listen at 127.0.0.1; set different ports`},
		"equal":             {map[string]string{"SERVE_ADMIN_PORT": "9", "SERVE_HTTP_PORT": "9"}, `SERVE_ADMIN_PORT="9": SERVE_HTTP_PORT is the same port`},
		"on all addresses":  {map[string]string{"SERVE_ADMIN_PORT": "9", "SERVE_HTTP_PORT": "9", "SERVE_HTTP_HOST": "0.0.0.0"}, `SERVE_ADMIN_PORT="9": SERVE_HTTP_PORT is the same port`},
		"by name":           {map[string]string{"SERVE_ADMIN_PORT": "9", "SERVE_HTTP_PORT": "9", "SERVE_HTTP_HOST": "localhost"}, `SERVE_ADMIN_PORT="9": SERVE_HTTP_PORT is the same port`},
		"other addresses":   {map[string]string{"SERVE_ADMIN_PORT": "9", "SERVE_HTTP_PORT": "9", "SERVE_HTTP_HOST": "127.0.0.2"}, ""},
		"any free ones":     {map[string]string{"SERVE_ADMIN_PORT": "0", "SERVE_HTTP_PORT": "0"}, ""},
		"that of gRPC":      {map[string]string{"SERVE_ADMIN_PORT": "9", "SERVE_GRPC_PORT": "9"}, `SERVE_ADMIN_PORT="9": SERVE_GRPC_PORT is the same port`},
		"gRPC and HTTP":     {map[string]string{"SERVE_GRPC_PORT": "8000"}, `SERVE_GRPC_PORT="8000": SERVE_HTTP_PORT is the same port`},
		"gRPC not asked":    {map[string]string{"SERVE_ADMIN_PORT": "9000"}, ""},
		"no admin listener": {map[string]string{"SERVE_HTTP_PORT": "8001"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cfg, err := ConfigFromEnv(func(name string) string { return test.env[name] })
			for _, err := range []error{err, cfg.Validate()} {
				if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.HasPrefix(err.Error(), test.want)) {
					t.Errorf("error %v, want %q", err, test.want)
				}
			}
		})
	}
	file := serviceFile(t, "http_options: {port: 8005}\nadmin: {port: 8005}\n")
	_, err := LoadConfigFile(file, func(string) string { return "" })
	if want := file + `:2:15: admin.port="8005": http_options.port is the same port`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
