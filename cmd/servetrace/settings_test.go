package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/servetrace/servetrace/host"
)

// TestEntryOf: the host accepts the entry of any path, and finds the same path in it.
func TestEntryOf(t *testing.T) {
	for _, c := range []struct{ where, name string }{
		{"./console", "console"},
		{"console", "console"},
		{"/opt/a.b/exporter.bin", "exporter"},
		{"./a,b=c@d", "plugin"},
		{"./testplugin-small:2", "plugin"},
		{"./with space", "plugin"},
		{"./" + strings.Repeat("x", 80), "plugin"},
		{"unix:///run/names.sock", "names"},
		{"/opt/100%25/x", "x"},
	} {
		cfg, err := settings{func(string) string { return "" }}.one(t.Context(), c.where, "")
		if err != nil {
			t.Errorf("%q: %v", c.where, err)
			continue
		}
		is := host.Inspect(t.Context(), cfg, false)
		if len(is) != 1 || is[0].Name != c.name || is[0].Where != c.where {
			t.Errorf("%q comes to %+v, want name %q", c.where, is, c.name)
		}
	}
	for _, where := range []string{" ", "./a%2Cb", "./a%3db", "unix:///run/a%40b"} { // no entry comes to them
		if _, err := itemOf(where); exitCode(t.Context(), err) != exitUsage {
			t.Errorf("%q: %v, want an error of usage", where, err)
		}
	}
}

// TestDocumentWithoutEnd: a pipe without a writer and a device without an end do not
// block a command.
func TestDocumentWithoutEnd(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	defer func() { // waits for the goroutine that opens it, and lets it go
		if f, err := os.OpenFile(pipe, os.O_WRONLY, 0); err != nil || f.Close() != nil {
			t.Errorf("release the pipe: %v", err)
		}
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt"))
	none := settings{func(string) string { return "" }}
	_, err := none.one(ctx, "./console", pipe)
	if err == nil || err.Error() != "read --config "+pipe+": interrupt" || exitCode(ctx, err) != exitInterrupted {
		t.Errorf("pipe: error %v with code %d", err, exitCode(ctx, err))
	}
	_, err = none.one(t.Context(), "./console", "/dev/zero")
	if err == nil || !strings.HasPrefix(err.Error(), "--config: /dev/zero: it has more than ") || exitCode(t.Context(), err) != exitUsage {
		t.Errorf("device: error %v with code %d", err, exitCode(t.Context(), err))
	}
}

func TestSettingsOfOnePlugin(t *testing.T) {
	for _, c := range []struct{ setting, sign, all, want string }{
		{"", "=", "", ""},
		{"a=x,b=y", "=", "", "b=y"},
		{"a=x, b=y%2Cz ,bb=w", "=", "", "b=y%2Cz"},
		{"bb=w", "=", "", ""},
		{"a:X,b:Y,b:Z_*,*:W", ":", "*", "b:Y,b:Z_*,*:W"},
		{"1GiB,a=2GiB,b=3GiB", "=", "", "1GiB,b=3GiB"},
	} {
		if got := settingOf(c.setting, "b", c.sign, c.all); got != c.want {
			t.Errorf("%q has %q for b, want %q", c.setting, got, c.want)
		}
	}
}

func TestExitCode(t *testing.T) {
	plain := errors.New("x")
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, exitOK}, {plain, exitNo}, {usageError{plain}, exitUsage}, {errors.Join(plain, usagef("y %w", plain)), exitUsage},
	} {
		if got := exitCode(t.Context(), c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{"./a-b_c.d": "./a-b_c.d", "a b": "'a b'", "it's": `'it'\''s'`, "": "''", "~x": "'~x'"} {
		if got := shellWord(in); got != want {
			t.Errorf("%q is %s, want %s", in, got, want)
		}
	}
}
