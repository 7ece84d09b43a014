package peer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestToxicBreaksAndMendsAConnection(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
	}))
	defer server.Close()
	proxy := Toxic(t, strings.TrimPrefix(server.URL, "http://"))
	try := func(ctx context.Context) error {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, proxy.HTTP(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err == nil && string(text) != "hello" {
			t.Errorf("the answer is %q", text)
		}
		return err
	}
	fine := func() {
		t.Helper()
		if err := try(t.Context()); err != nil {
			t.Errorf("through a proxy without toxics: %v", err)
		}
	}
	fine()

	proxy.Disable()
	if err := try(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("through one that is disabled: %v, want refused", err)
	}
	proxy.Enable()
	fine()

	proxy.Add("reset_peer", Downstream, map[string]any{"timeout": 0})
	if err := try(t.Context()); err == nil {
		t.Error("a connection that is reset has answered")
	}
	proxy.Clear()
	fine()

	proxy.Add("timeout", Upstream, map[string]any{"timeout": 0})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := try(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("through one that holds everything: %v, want nothing until the deadline", err)
	}
	proxy.Clear()
	fine()
}
