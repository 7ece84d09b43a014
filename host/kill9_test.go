package host_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// spansOfKill is the number of spans in the first batch of a test.
const spansOfKill = 20

// chain is a plugin and the back end behind it, in a folder of their own:
// host - relay - back end.
type chain struct {
	t   *testing.T
	dir string
	// relay is the plugin's path.
	relay   string
	backEnd *exec.Cmd
}

// newChain makes the folder and starts the back end. Some program will stop at
// the point.
func newChain(t *testing.T, point string) *chain {
	t.Helper()
	dir := testplugin.SocketFolder(t)
	c := &chain{t: t, dir: dir}
	c.relay = c.link("relay")
	c.link("backend")
	c.link("sender")
	c.write("stop", point)
	if err := os.Mkdir(filepath.Join(dir, "inner"), 0o700); err != nil {
		t.Fatal(err)
	}
	c.startBackEnd()
	t.Cleanup(c.killBackEnd)
	return c
}

// link makes a program of this folder.
func (c *chain) link(mode string) string {
	exe, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.dir, ownPrefix+mode)
	if err := os.Symlink(exe, path); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *chain) write(name, text string) {
	if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

func (c *chain) startBackEnd() {
	c.backEnd = exec.Command(filepath.Join(c.dir, ownPrefix+"backend"))
	c.backEnd.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	if err := c.backEnd.Start(); err != nil {
		c.t.Fatal(err)
	}
	testplugin.WaitFor(c.t, "the back end", func() bool {
		conn, err := net.Dial("unix", filepath.Join(c.dir, "backend"))
		return err == nil && conn.Close() == nil
	})
}

func (c *chain) killBackEnd() {
	_ = c.backEnd.Process.Kill() // it does not end by itself
	_ = c.backEnd.Wait()         // killed, as wanted
}

// await waits until a program has come to the point.
func (c *chain) await() {
	c.t.Helper()
	testplugin.WaitFor(c.t, "the point", func() bool { return exists(filepath.Join(c.dir, "at")) })
}

// goOn lets the program go on, if it still can.
func (c *chain) goOn() { c.write("go", "") }

// stored returns the batches of the back end, in the order of their arrival.
func (c *chain) stored() []stored {
	c.t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, "stored"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.t.Fatal(err)
	}
	var list []stored
	for line := range strings.Lines(string(data)) {
		var batch stored
		if err := json.Unmarshal([]byte(line), &batch); err != nil {
			c.t.Fatalf("line %q: %v", line, err)
		}
		list = append(list, batch)
	}
	return list
}

// later stands for any attempt after the first: while a back end is away a batch
// is tried again and again.
const later = -1

// wantStored checks that the back end has every span of the first batch, in one
// batch that came at exactly these attempts, and of the second, which came once.
func (c *chain) wantStored(attempts ...int) {
	c.t.Helper()
	of := map[string][]stored{}
	for _, batch := range c.stored() {
		prefix, _, _ := strings.Cut(batch.Spans[0], "-")
		of[prefix] = append(of[prefix], batch)
	}
	var got []int
	for _, batch := range of["first"] {
		if batch.ID != of["first"][0].ID || len(batch.Spans) != spansOfKill {
			c.t.Errorf("batch %s with %d spans, want the same batch again with %d", batch.ID, len(batch.Spans), spansOfKill)
		}
		got = append(got, batch.Attempt)
		if i := len(got) - 1; i < len(attempts) && attempts[i] == later && batch.Attempt > 1 {
			got[i] = later
		}
	}
	if diff := cmp.Diff(attempts, got); diff != "" {
		c.t.Errorf("attempts of the first batch that were stored (-want +got):\n%s", diff)
	}
	if second := of["second"]; len(second) != 1 || len(second[0].Spans) != spansOfKill {
		c.t.Errorf("the second batch was stored %d times: %+v", len(second), second)
	}
}

// killed starts a host, has it send two batches, and kills the victim when the
// first has come to the point; the second waits, for the plugin takes one at a
// time. Behind the answer to the first, the second comes after the kill. In the end
// all is delivered.
func killed(t *testing.T, point string, kill func(c *chain, r *running)) *chain {
	t.Helper()
	c := newChain(t, point)
	r := startHost(t, func(cfg *host.Config) {
		cfg.BatchSpans, cfg.ExportTimeout = spansOfKill, time.Minute
		cfg.BatchAge = time.Hour // by its age, a batch of a slow machine would have fewer spans
		// The process is frozen on purpose.
		cfg.MaxAge = 10 * time.Minute
	}, c.relay)
	r.waitReady(0)
	r.spans("first", spansOfKill)
	r.Seal()
	c.await()
	second := func() {
		r.spans("second", spansOfKill)
		r.Seal()
		r.balanced()
	}
	if point == pointAcknowledged { // the plugin takes the next batch, which must not be lost with it
		kill(c, r)
		second()
	} else {
		second()
		kill(c, r)
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": 2 * spansOfKill})
	return c
}

// The plugin is killed by SIGKILL at every point in the life of a batch. Nothing is lost,
// and only batches without an acknowledgement are sent again, with the same id.
func TestKill9OfThePlugin(t *testing.T) {
	for point, attempts := range map[string][]int{
		pointReceived: {2},
		// The back end never hears that its client is gone.
		pointSent:     {1, 2},
		pointStored:   {1, 2},
		pointAnswered: {1, 2},
		pointHalf:     {1, 2},
		// The host has the answer, though the plugin has ended behind it.
		pointAcknowledged: {1},
	} {
		t.Run(point, func(t *testing.T) {
			c := killed(t, point, func(c *chain, r *running) {
				pid := r.Stats().Exporters[0].PID
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				testplugin.WaitFor(t, "its end", func() bool { return testplugin.Gone(pid) })
				c.goOn()
			})
			if point == pointSent {
				// Its two storings of the batch are not ordered.
				testplugin.WaitFor(t, "the first attempt", func() bool { return len(c.stored()) == 3 })
				sortAttempts(c)
				return
			}
			c.wantStored(attempts...)
		})
	}
}

// sortAttempts checks the same as wantStored where attempts may overtake each
// other.
func sortAttempts(c *chain) {
	c.t.Helper()
	got := map[string]int{}
	for _, batch := range c.stored() {
		prefix, _, _ := strings.Cut(batch.Spans[0], "-")
		if prefix == "second" { // it may have been tried while nobody was there
			batch.Attempt = later
		}
		got[fmt.Sprintf("%s batch, attempt %d", prefix, batch.Attempt)]++
	}
	want := map[string]int{"first batch, attempt 1": 1, "first batch, attempt 2": 1, fmt.Sprintf("second batch, attempt %d", later): 1}
	if diff := cmp.Diff(want, got); diff != "" {
		c.t.Errorf("stored (-want +got):\n%s", diff)
	}
}

// The back end is killed and comes back. The plugin returns an error, and the same batch
// is sent again.
func TestKill9OfTheBackEnd(t *testing.T) {
	t.Parallel() // it waits for processes
	for point, attempts := range map[string][]int{
		pointReceived: {1}, // the plugin finds the next one
		pointSent:     {later},
		pointStored:   {1, later},
		pointAnswered: {1}, // it has done its work
	} {
		t.Run(point, func(t *testing.T) {
			c := killed(t, point, func(c *chain, _ *running) {
				c.killBackEnd()
				c.startBackEnd()
				c.goOn()
			})
			c.wantStored(attempts...)
		})
	}
}

// The host is killed, and its spans are lost with it. The spans of the back end are whole
// and there once, and the plugin ends, too.
func TestKill9OfTheHost(t *testing.T) {
	for point, want := range map[string][]int{
		pointReceived: {0, 1}, // a plugin may finish what it has, or not
		pointSent:     {1}, pointStored: {1}, pointAnswered: {1}, pointHalf: {1}, pointAcknowledged: {1},
	} {
		t.Run(point, func(t *testing.T) {
			c := newChain(t, point)
			host := exec.Command(filepath.Join(c.dir, ownPrefix+"sender"), c.relay)
			host.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+c.dir)
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			var plugin int
			line, err := bufio.NewReader(out).ReadString('\n')
			if _, scanErr := fmt.Sscan(line, &plugin); scanErr != nil {
				t.Fatalf("the program said %q: %v, %v", line, err, scanErr)
			}
			c.await()
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait() // killed, as wanted
			if point == pointSent || point == pointStored {
				c.goOn() // the back end's; a plugin that is held ends so
			}
			testplugin.WaitFor(t, "the plugin's end", func() bool { return testplugin.Gone(plugin) })
			if point == pointSent {
				testplugin.WaitFor(t, "what was sent", func() bool { return len(c.stored()) > 0 })
			}
			if got := c.stored(); !slices.Contains(want, len(got)) || len(got) == 1 && len(got[0].Spans) != spansOfKill {
				t.Errorf("stored %+v, want %v batches, with %d spans", got, want, spansOfKill)
			}
		})
	}
}

// TestKill9AgainAndAgainLosesNothing: each process of a plugin is killed as soon as it is
// ready, more often than a crashing plugin may crash before the breaker opens.
func TestKill9AgainAndAgainLosesNothing(t *testing.T) {
	t.Parallel() // most of it is pauses between starts
	r := startHost(t, func(c *host.Config) { c.StartTimeout, c.MaxAge = time.Minute, 10*time.Minute }, testplugin.Install(t, "record"))
	for n := range crashesToBreak {
		pid := 0
		testplugin.WaitFor(t, "another process", func() bool {
			x := r.Stats().Exporters[0]
			pid = x.PID
			return x.State == host.StateReady && x.Starts == uint64(n+1)
		})
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		r.spans(fmt.Sprint(n), spansOfKill)
		testplugin.WaitFor(t, "the host to see its end", func() bool { return r.Stats().Exporters[0].Crashes == uint64(n+1) })
	}
	r.flush()
	r.wantCounts(0, map[string]uint64{"delivered": crashesToBreak * spansOfKill})
	if log := r.log.String(); strings.Contains(log, "plugin is broken") {
		t.Errorf("kills by others have opened the breaker; log:\n%s", log)
	}
}
