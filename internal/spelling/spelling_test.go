package spelling_test

import (
	"testing"

	"github.com/servetrace/servetrace/internal/spelling"
)

func TestNearest(t *testing.T) {
	words := []string{"name", "tracing_config", "http_options", "Admin", "SERVE_TRACING_SAMPLING_RATIO"}
	for word, want := range map[string]string{
		"tracing_cofnig": "tracing_config", "naem": "name", "nme": "name", "x": "", "zzzz": "", "logging": "", "Name": "name",
		"amdin": "Admin", "tracing": "",
		"SERVE_TRACING_SAMPLE_RATIO": "SERVE_TRACING_SAMPLING_RATIO", "SERVE_TRACING_QUEUE_BYTES": "",
	} {
		if got := spelling.Nearest(word, words); got != want {
			t.Errorf("nearest to %q: %q, want %q", word, got, want)
		}
	}
}
