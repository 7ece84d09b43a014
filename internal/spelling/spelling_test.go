package spelling

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"name", "tracing_config", "http_options", "Admin"}
	for word, want := range map[string]string{
		"tracing_cofnig": "tracing_config", "naem": "name", "nme": "name", "x": "", "zzzz": "", "logging": "", "Name": "name",
		"amdin": "Admin", "tracing": "",
	} {
		if got := Nearest(word, words); got != want {
			t.Errorf("nearest to %q: %q, want %q", word, got, want)
		}
	}
}
