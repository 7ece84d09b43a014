package serving_test

import (
	"bufio"
	"bytes"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/test/servingtest"
)

func exitGoroutine() { runtime.Goexit() }

// TestHeaderLimits: the limits hold without a setting.
func TestHeaderLimits(t *testing.T) {
	r := start(t, serving.Config{}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		size, want int
	}{
		{32 << 10, 200},
		{80 << 10, 431},
	} {
		c := r.dial("GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + strings.Repeat("a", tt.size) + "\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%d bytes: %v", tt.size, err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%d bytes of header: status %d, want %d", tt.size, resp.StatusCode, tt.want)
		}
	}
	got := r.server.Effective()
	if got.ReadHeaderTimeout != 10*time.Second || got.IdleTimeout != 90*time.Second || got.MaxHeaderBytes != 64<<10 {
		t.Errorf("defaults: ReadHeaderTimeout %v, IdleTimeout %v, MaxHeaderBytes %d",
			got.ReadHeaderTimeout, got.IdleTimeout, got.MaxHeaderBytes)
	}
}

// TestSlowHeaders: a client that does not finish its headers, or keeps a
// connection without using it, is disconnected.
func TestSlowHeaders(t *testing.T) {
	r := start(t, serving.Config{ReadHeaderTimeout: shortTimeout, IdleTimeout: shortTimeout},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: x\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		c := r.dial(request)
		_ = c.SetReadDeadline(time.Now().Add(servingtest.Patience))
		if _, err := io.ReadAll(c); err != nil {
			t.Errorf("%q: %v, want EOF", request, err)
		}
	}
}

// TestUploadsAreCleanedUp: the temporary files of a form go with the request.
func TestUploadsAreCleanedUp(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r := start(t, serving.Config{}, serving.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) error {
		if err := req.ParseMultipartForm(1); err != nil {
			return err
		}
		if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
			t.Errorf("while the handler runs: files %v, %v, want one", files, err)
		}
		return nil
	}))
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "name")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = part.Write(make([]byte, 20<<20))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	resp, err := r.client.Post(r.url("/"), w.FormDataContentType(), &form)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("after the request: files %v, %v, want none", files, err)
	}
}

// TestReplicaLimit: no more than max_ongoing_requests run in a replica.
func TestReplicaLimit(t *testing.T) {
	entered, leave := make(chan string, 16), make(chan struct{})
	r := start(t, serving.Config{}, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		info, _ := serving.ReplicaContext(req.Context())
		entered <- info.ReplicaID.UniqueID
		<-leave
	}), serving.WithReplicas(2))
	answers := make(chan answer, 16)
	for range 16 {
		go func() { answers <- r.get("/") }()
	}
	perReplica := map[string]int{}
	for range 10 {
		perReplica[servingtest.Receive(t, "a handler", entered)]++
	}
	r.queued(6)
	if len(entered) > 0 {
		t.Error("more than 2 x 5 handlers run")
	}
	for id, n := range perReplica {
		if n != 5 {
			t.Errorf("replica %s runs %d, want 5", id, n)
		}
	}
	close(leave)
	for range 16 {
		checkStatus(t, servingtest.Receive(t, "an answer", answers), 200)
	}
}
