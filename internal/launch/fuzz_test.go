package launch

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/servetrace/servetrace/internal/printable"
)

// FuzzParseHandshake: an accepted handshake is printable and valid for go-plugin.
func FuzzParseHandshake(f *testing.F) {
	for _, seed := range []string{
		"1|1|unix|/tmp/plugin|grpc|", "1|1|tcp|127.0.0.1:1|netrpc", "1|2|unix|/x", "|||", "1|1|unix|\x1b[2J|grpc", "99999999999999999999|1|unix|x",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		h, ok := parseHandshake(string(line))
		if ok && (bytes.Count(line, []byte("|")) < 3 || printable.Text(h.protocol) != h.protocol) {
			t.Errorf("%q is a handshake: %+v", line, h)
		}
		r := newHandshakeReader(nil)
		if len(line) == 0 || !r.offer(line) {
			return
		}
		if r.offer(line) {
			t.Errorf("%q is taken twice", line)
		}
		got := make([]byte, len(line)+1)
		n, err := r.Read(got)
		if want := strings.TrimSpace(string(line)) + "\n"; err != nil || string(got[:n]) != want {
			t.Errorf("go-plugin reads %q, %v, want %q", got[:n], err, want)
		}
	})
}

// FuzzParseRecord: a parsed record is printable, and has no key of the host.
func FuzzParseRecord(f *testing.F) {
	for _, seed := range []string{
		`{"@message":"m","@level":"warn","k":{"a":[1,2.5,null,true]}}`, `{"@message":"\u001b[2J\ud800","level":"x","":""}`, `{"@message":1}`, `{`, `{"@message":""} `,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, ok := parseRecord(string(text))
		if !ok {
			return
		}
		r, size := r.clean(NewRedactor([]string{"secret"}))
		all := r.message
		for _, attr := range r.attrs {
			all += attr.Key + attr.Value.String()
			if attr.Key == slog.TimeKey || attr.Key == slog.LevelKey || attr.Key == slog.MessageKey || attr.Key == "plugin" {
				t.Errorf("%q gives the key %q", text, attr.Key)
			}
		}
		if size != len(all) {
			t.Errorf("size %d of %d", size, len(all))
		}
		checkShown(t, all)
		if strings.Contains(all, "secret") {
			t.Errorf("a secret is shown: %q", all)
		}
	})
}

// checkShown fails if a text may not be shown to an operator.
func checkShown(t *testing.T, text string) {
	t.Helper()
	if !utf8.ValidString(text) {
		t.Errorf("no UTF-8: %q", text)
	}
	for _, r := range text {
		if r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= '\u202a' && r <= '\u202e' || r == '\u2028' {
			t.Errorf("%#U is shown: %q", r, text)
		}
	}
}

// FuzzOutput: for any output in any chunks, the end is kept unchanged, memory is bounded,
// and the log has whole lines without secrets.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("hello\nworld"), []byte{1, 200}, byte(1))
	f.Add([]byte("panic: secret\n\ngoroutine 1\n"), []byte{3}, byte(200))
	f.Add([]byte("\x1b[2J\xff\x00\r\n{\"@message\":\"a\\nb\"}\n"), []byte{0}, byte(255))
	f.Add(bytes.Repeat([]byte("secretsecre\n"), 20), []byte{7, 1}, byte(255))
	f.Fuzz(func(t *testing.T, text, chunks []byte, times byte) {
		text = bytes.Repeat(text, min(int(times)+1, (256<<10)/(len(text)+1)+1))
		var log bytes.Buffer
		o := newPluginLog(slog.New(slog.NewTextHandler(&log, nil)), []string{"secret"})
		w := o.writer("stderr").(*stream)
		for rest, i := text, 0; len(rest) > 0; i++ {
			n := len(rest)
			if len(chunks) > 0 {
				n = min(n, 1+int(chunks[i%len(chunks)])<<(i%7))
			}
			_, _ = w.Write(rest[:n])
			rest = rest[n:]
			if len(w.line) > maxLine+o.secrets.margin() || len(o.stack.head) > o.maxStack()+1 || len(o.tail) > o.tailBytes() {
				t.Fatalf("%d bytes of a line, %d of a stack, %d of the tail are held", len(w.line), len(o.stack.head), len(o.tail))
			}
		}
		o.end()
		if want := text[max(0, len(text)-o.tailBytes()):]; !bytes.Equal(o.tail, want) {
			t.Errorf("the end is not kept as printed: %q, want %q", o.tail, want)
		}
		stack, _ := o.keptStack()
		checkShown(t, strings.ReplaceAll(stack, "\n", ""))
		checkShown(t, o.lastLine())
		if len(o.kept()) > keptOutput || len(stack) > maxKeptStack || len(o.lastLine()) > maxLastLine+len("…") {
			t.Errorf("%d bytes of output, %d of a stack, %d of a last line are given", len(o.kept()), len(stack), len(o.lastLine()))
		}
		for _, shown := range []string{stack, o.lastLine(), string(o.kept()), log.String()} {
			if strings.Contains(shown, "secret") {
				t.Errorf("a secret is shown: %.2000q", shown)
			}
		}
		if most := 8 * (burstBytes + maxLine + 200*burstLines); log.Len() > most {
			t.Errorf("a log of %d bytes", log.Len())
		}
		for line := range strings.Lines(log.String()) {
			checkShown(t, strings.TrimSuffix(line, "\n"))
			if stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " "); !isTime(stamp) {
				t.Errorf("a line of the log that the log did not begin: %q", line)
			}
		}
	})
}

func isTime(text string) bool {
	_, err := time.Parse(time.RFC3339Nano, text)
	return err == nil
}
