package remote_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
)

const (
	// items is the number of items of a stream, of 160 MB in all.
	items = 5_000
	// ahead bounds how many items a process sends that the client has not read. They fill the
	// buffers of the kernel and the windows of HTTP/2.
	ahead = items / 2
	// memory bounds the memory of a process in bytes, with the race detector.
	memory = 256 << 20
)

// reader is a client of a stream: Ingress answers with the items that it reads from Model.
type reader struct {
	t    *testing.T
	body io.Reader
	next int // the number of the next item
}

// read starts a stream of items through a process.
func read(t *testing.T, ingress *process) *reader {
	t.Helper()
	client := &http.Client{Transport: new(http.Transport)}
	resp, err := client.Get(fmt.Sprint("http://", ingress.ready.HTTP, "/?items=", items))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = resp.Body.Close() // it may not be read to its end
		client.CloseIdleConnections()
	})
	return &reader{t: t, body: resp.Body}
}

// take reads up to n items, and checks that they come in order, each once. It returns the
// error that ends the stream before.
func (r *reader) take(n int) error {
	r.t.Helper()
	item := make([]byte, itemBytes)
	for range n {
		if _, err := io.ReadFull(r.body, item); err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(item); got != uint64(r.next) {
			r.t.Fatalf("item %d, want %d", got, r.next)
		}
		r.next++
	}
	return nil
}

// blocked waits until Model sends no more items to a reader that does not read, and checks
// how far ahead of the reader it is.
func (r *reader) blocked(h handles) {
	r.t.Helper()
	last, same := int64(-1), 0
	for same < 50 {
		sent, err := h.sent.Call(r.t.Context(), "")
		if err != nil {
			r.t.Fatal(err)
		}
		if same++; sent != last {
			last, same = sent, 0
		}
		if int(sent) > r.next+ahead {
			r.t.Fatalf("%d items are sent to a client that has read %d", sent, r.next)
		}
	}
}

// checkMemory checks the most memory that a process has had.
func checkMemory(t *testing.T, name string, p *process) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("this system does not report the memory of a process")
	}
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(after, " kB")
	kilobytes, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d MiB", name, kilobytes>>10)
	if kilobytes<<10 > memory {
		t.Errorf("%s has had %d MiB of memory, want at most %d", name, kilobytes>>10, memory>>20)
	}
}

// streaming starts Model and an Ingress that calls it, and a stream through both. The
// handles are of a third process.
func streaming(t *testing.T) (model, ingress *process, r *reader, h handles) {
	t.Helper()
	model = callee(t, "127.0.0.1:0")
	ingress = start(t, "SERVE_DEPLOYMENTS=Ingress", "SERVE_REMOTE=Model=static:///"+model.ready.Calls)
	_, h = caller(t, addrs(model))
	return model, ingress, read(t, ingress), h
}

// finish reads the rest of the stream, and checks that its function ran once.
func (r *reader) finish(model *process) {
	r.t.Helper()
	if err := r.take(items - r.next); err != nil {
		r.t.Fatalf("after %d items: %v", r.next, err)
	}
	if err := r.take(1); !errors.Is(err, io.EOF) {
		r.t.Errorf("after the last item: %v", err)
	}
	model.await("left", "count")
	if times := ran(model)["count"]; times != 1 {
		r.t.Errorf("the function ran %d times", times)
	}
}

// TestSlowReader: a client that reads slowly slows the function in another process. Both
// processes are bounded in memory, and each item arrives once.
func TestSlowReader(t *testing.T) {
	model, ingress, r, h := streaming(t)
	for range 4 {
		if err := r.take(items / 10); err != nil {
			t.Fatal(err)
		}
		r.blocked(h)
	}
	r.finish(model)
	checkMemory(t, "the callee", model)
	checkMemory(t, "the caller", ingress)
}

// TestFrozenCaller freezes the caller of a stream. The function waits, and its process takes
// other calls and is bounded in memory. When the caller runs again, no item is lost, and none
// comes twice. A caller that is frozen for longer than the kernel waits is lost: then the
// stream fails after its last item, and the test tries again.
func TestFrozenCaller(t *testing.T) {
	for range 10 {
		model, ingress, r, h := streaming(t)
		if err := r.take(10); err != nil {
			t.Fatal(err)
		}
		ingress.signal(syscall.SIGSTOP)
		r.blocked(h)
		ingress.signal(syscall.SIGCONT)
		err := r.take(items - r.next)
		checkMemory(t, "the callee", model)
		if err == nil {
			r.finish(model)
			return
		}
		r.checkLost(model, err)
	}
	t.Error("no stream survives a frozen caller")
}

// TestCallerThatStaysFrozen: the function ends while the caller is frozen. When the caller
// runs again, its stream fails.
func TestCallerThatStaysFrozen(t *testing.T) {
	model, ingress, r, h := streaming(t)
	if err := r.take(10); err != nil {
		t.Fatal(err)
	}
	ingress.signal(syscall.SIGSTOP)
	model.await("left", "count")
	r.blocked(h)
	ingress.signal(syscall.SIGCONT)
	r.checkLost(model, r.take(items-r.next))
	checkMemory(t, "the callee", model)
	if body := get(t, ingress, "next"); body != "next" {
		t.Errorf("answer %q", body)
	}
}

// checkLost checks that the stream of a lost caller has failed, and that its function ran
// once.
func (r *reader) checkLost(model *process, err error) {
	r.t.Helper()
	if err == nil || errors.Is(err, io.EOF) {
		r.t.Errorf("the stream of a lost caller ends with %v after %d items", err, r.next)
	}
	model.await("left", "count")
	if times := ran(model)["count"]; times != 1 {
		r.t.Errorf("the function ran %d times", times)
	}
}

// TestFrozenCallee freezes the only process of a deployment: calls end at their deadline. When
// it runs again, the function of an accepted call sees the deadline, and a call that was not
// accepted does not run.
func TestFrozenCallee(t *testing.T) {
	model := callee(t, "127.0.0.1:0")
	server, h := caller(t, addrs(model))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	call := func(name string, run func() error) {
		calls.Go(func() {
			if err := run(); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	call("accepted call", func() error {
		_, err := h.model.Call(ctx, job{ID: "accepted", Wait: true})
		return err
	})
	model.await("ran", "accepted")
	model.signal(syscall.SIGSTOP)
	awaitSilence(t, h)
	call("offered call", func() error {
		_, err := h.model.Call(ctx, job{ID: "offered"})
		return err
	})
	call("offered stream", func() (err error) {
		for _, err = range h.count.Stream(ctx, items) {
		}
		return err
	})
	calls.Wait()
	model.signal(syscall.SIGCONT)
	model.await("canceled", "accepted")
	awaitStatus(t, server, func(s serving.DeploymentStatus) bool { return s.NumReplicas == 1 && s.Replicas[0].Ongoing == 0 })
	if out, err := h.model.Call(t.Context(), job{ID: "next"}); out != "next" || err != nil {
		t.Errorf("the next call: %q, %v", out, err)
	}
	model.stop()
	times := ran(model)
	if times["accepted"] != 1 || times["next"] != 1 || len(times) != 2 {
		t.Errorf("calls that ran: %v", times)
	}
}

// awaitSilence waits until the process answers no call. A thread that runs does not stop at
// once.
func awaitSilence(t *testing.T, h handles) {
	t.Helper()
	for answered := true; answered; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err := h.sent.Call(ctx, "")
		answered = err == nil
		cancel()
	}
}
