package pluginsdk_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/servetrace/servetrace/internal/wire"
)

// TestListenTakesGzip checks that a plugin takes a compressed batch, and refuses a small
// message that decompresses to more than the bound of a message. The test imports no
// compressor: the plugin is this test binary, and would have it too.
func TestListenTakesGzip(t *testing.T) {
	socket := filepath.Join(socketFolder(t), "dev.sock")
	l := startListening(t, nil, "--listen", socket)
	l.stdout.await(t, "\n")
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithCompressor(grpc.NewGZIPCompressor())) //nolint:staticcheck // the one compressor that is not registered for the process
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()

	if err := export(t.Context(), conn, "environment", strings.Repeat("long ", 1000)); err != nil {
		t.Errorf("Export of a compressed batch: %v", err)
	}
	err = export(t.Context(), conn, strings.Repeat("x", wire.MaxMessageBytes))
	if codeOf(err) != "RESOURCE_EXHAUSTED" || !strings.Contains(err.Error(), "after decompression larger than max") {
		t.Errorf("Export of a bomb: %v, want RESOURCE_EXHAUSTED", err)
	}
	if err := export(t.Context(), conn, "environment"); err != nil {
		t.Errorf("Export after the bomb: %v", err)
	}
	environment := "Getenv \"\" os \"\" HOME \"\" other \"\"\n"
	if printed := l.end(t, syscall.SIGTERM); printed != environment+environment+"flushed\nshut down\n" {
		t.Errorf("exporter saw %q, want both batches", printed)
	}
}
