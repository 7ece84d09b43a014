package launch

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/servetrace/servetrace/test/testplugin"
)

func newTestLog(secrets ...string) (*pluginLog, *testplugin.Log) {
	log := &testplugin.Log{}
	return newPluginLog(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), secrets), log
}

func TestLinesOfALog(t *testing.T) {
	long := strings.Repeat("l", maxLine+1)
	for _, test := range []struct{ name, printed, want string }{
		{"plain", "hello\r\n\n  world", "level=INFO msg=hello stream=stderr\nlevel=INFO msg=\"  world\" stream=stderr\n"},
		{"level", "[WARN] odd\n", "level=WARN msg=\"[WARN] odd\" stream=stderr\n"},
		{"long", long + "\nnext\n", "level=INFO msg=" + long[1:] + "… stream=stderr\nlevel=INFO msg=next stream=stderr\n"},
		{"long without an end", long + long, "level=INFO msg=" + long[1:] + "… stream=stderr\n"},
		{"colour and bell", "\x1b[31mred\x07\x9b\u009b\u202e\n", "level=INFO msg=\"␛[31mred␇\uFFFD\uFFFD\uFFFD\" stream=stderr\n"},
		{"record", `{"@level":"error","@message":"m\nlevel=ERROR msg=forged","n":12345678,"x":{"y":[1,null]}}` + "\n",
			"level=ERROR msg=\"m␊level=ERROR msg=forged\" n=12345678 x=\"map[y:[1 <nil>]]\"\n"},
		{"host's keys", `{"@message":"m","plugin":"other","level":"x","time":1,"msg":"y","@pid":1}` + "\n",
			"level=INFO msg=m _level=x _msg=y _plugin=other _time=1\n"},
		{"more than a record", `{"@message":"m"}{}` + "\n", "level=INFO msg=\"{\\\"@message\\\":\\\"m\\\"}{}\" stream=stderr\n"},
		{"panic", "panic: no\n\ngoroutine 1 [running]:\n",
			"level=INFO msg=\"panic: no\" stream=stderr\nlevel=INFO msg=\"goroutine 1 [running]:\" stream=stderr\n"},
		{"panic in a line", "no panic: here\nfatal error\n",
			"level=INFO msg=\"no panic: here\" stream=stderr\nlevel=INFO msg=\"fatal error\" stream=stderr\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, size := range []int{1, 7, len(test.printed)} {
				o, log := newTestLog()
				printIn(o, test.printed, size)
				if got, _, _ := strings.Cut(log.String(), "level=WARN msg=\"plugin printed more"); got != test.want {
					t.Errorf("in chunks of %d:\n%s\nwant\n%s", size, got, test.want)
				}
			}
		})
	}
}

// No handler gets a control character, regardless of the source of a line.
func TestHandlersGetNoControlCharacters(t *testing.T) {
	var all strings.Builder
	for c := range 256 {
		all.WriteByte(byte(c))
	}
	noise := strings.ReplaceAll(all.String(), "\n", "")
	record, err := json.Marshal(map[string]any{"@message": all.String(), "@level": "warn", all.String(): all.String(), "list": []string{all.String()}})
	if err != nil {
		t.Fatal(err)
	}
	log := &testplugin.Log{}
	o := newPluginLog(slog.New(slog.NewJSONHandler(log, nil)), nil)
	printIn(o, noise+"\n"+string(record)+"\n{"+noise+"\n", 100)
	lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
	if len(lines) != 3 {
		t.Errorf("%d lines, want 3:\n%s", len(lines), log)
	}
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		for key, value := range fields {
			checkShown(t, key)
			checkShown(t, fmt.Sprint(value))
		}
	}
}

// printIn has text taken in, in chunks of a size, to its end.
func printIn(o *pluginLog, text string, size int) {
	w := o.writer("stderr")
	for chunk := range slices.Chunk([]byte(text), size) {
		_, _ = w.Write(chunk)
	}
	o.end()
}

// TestCapsOfTheLog: after a burst, a bounded number of lines and bytes per second is logged,
// in runs of consecutive lines. Notices have the numbers of skipped lines and bytes.
func TestCapsOfTheLog(t *testing.T) {
	for _, size := range []int{10, 1000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, log := newTestLog()
				w := o.writer("stderr")
				const seconds, perSecond = 15, 400
				for i := range seconds * perSecond {
					fmt.Fprintf(w, "%0*d\n", size, i)
					time.Sleep(time.Second / perSecond)
				}
				o.end()
				lines := strings.Count(log.String(), "stream=stderr")
				if most := min(burstLines+seconds*linesPerSecond, (burstBytes+seconds*bytesPerSecond)/size); lines > most+1 || lines < most/2 {
					t.Errorf("%d lines of %d bytes in %d s logged, want about %d", lines, size, seconds, most)
				}
				if got := uint64(seconds*perSecond - lines); o.suppressed() != got {
					t.Errorf("suppressed %d, want %d", o.suppressed(), got)
				}
				remarks, said, bytesSaid := 0, 0, 0
				for line := range strings.Lines(log.String()) {
					if _, rest, ok := strings.Cut(line, "are logged\" "); ok {
						var n, b int
						if _, err := fmt.Sscanf(rest, "suppressed=%d suppressed_bytes=%d", &n, &b); err != nil {
							t.Fatalf("remark %q: %v", line, err)
						}
						remarks, said, bytesSaid = remarks+1, said+n, bytesSaid+b
					}
				}
				if most := seconds/5 + 1; remarks > most || remarks < most/2 || said != seconds*perSecond-lines || bytesSaid != said*size {
					t.Errorf("%d remarks of %d lines and %d bytes; %d lines of %d were not logged", remarks, said, bytesSaid, seconds*perSecond-lines, size)
				}
			})
		})
	}
}

// inFakeTime returns a test in which time stands still while code runs.
func inFakeTime(test func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, test) }
}

func TestStackKeepsItsHead(t *testing.T) {
	dump := "goroutine 1 [running]:\nmain.main()\n\t/src/main.go:3 +0x1d\n\n"
	many := strings.Repeat(dump, 2*maxKeptStack/len(dump))
	traceback := "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\nValueError: no\n"
	for _, test := range []struct{ name, printed, want, last string }{
		{"none", "a panic: b\n\tpanic: c\nthe end\n", "", "the end"},
		{"panic", "before\npanic: boom\n\n" + dump, "panic: boom\n\n" + dump, "panic: boom"},
		{"many goroutines", "SIGQUIT: quit\nPC=0x1\n\n" + many, ("SIGQUIT: quit\nPC=0x1\n\n" + many)[:maxKeptStack], "SIGQUIT: quit"},
		{"fault", "unexpected fault address 0xc1\nfatal error: fault\n", "unexpected fault address 0xc1\nfatal error: fault\n", "fatal error: fault"},
		{"overflow", "runtime: goroutine stack exceeds 1000000000-byte limit\nfatal error: stack overflow\n\nruntime stack:\n",
			"runtime: goroutine stack exceeds 1000000000-byte limit\nfatal error: stack overflow\n\nruntime stack:\n", "fatal error: stack overflow"},
		{"python", traceback, traceback, "ValueError: no"},
		{"colour", "panic: \x1b[31m\xff\n", "panic: ␛[31m\uFFFD\n", "panic: ␛[31m\uFFFD"},
		{"no end", "panic: x", "panic: x\n", "panic: x"},
	} {
		t.Run(test.name, inFakeTime(func(t *testing.T) {
			for _, size := range []int{3, 4096, len(test.printed)} {
				// Also where it comes after more than is logged.
				for _, noise := range []string{"", strings.Repeat("noise\n", 2*burstLines)} {
					o, _ := newTestLog()
					printIn(o, noise+test.printed, size)
					got, begun := o.keptStack()
					if diff := cmp.Diff(test.want, got); diff != "" {
						t.Fatalf("in chunks of %d: stack (-want +got):\n%s", size, diff)
					}
					if begun.IsZero() != (got == "") {
						t.Errorf("begun at %v", begun)
					}
					if last := o.lastLine(); last != test.last {
						t.Errorf("last line %q, want %q", last, test.last)
					}
				}
			}
		}))
	}
}

// TestStackOfNow: a plugin that logs a traceback and lives on does not have it
// in the report of another end.
func TestStackOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, log := newTestLog()
		w := o.writer("stderr")
		fmt.Fprint(w, "panic: recovered\nfollows\n")
		time.Sleep(2 * stackAge)
		fmt.Fprint(w, "works again\n")
		if got := o.lastLine(); got != "works again" {
			t.Errorf("last line %q after it lived on", got)
		}
		if !strings.Contains(log.String(), "level=INFO msg=\"works again\"") {
			t.Errorf("still at level error:\n%s", log)
		}
		fmt.Fprint(w, "fatal error: all is lost\n")
		if got, _ := o.keptStack(); got != "fatal error: all is lost\n" {
			t.Errorf("stack %q", got)
		}
		o.end()
	})
}

func TestSecretsAreNotShown(t *testing.T) {
	const token, pem = `p<ss"w\rd-41`, "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEFA\n"
	held := maxLine + NewRedactor([]string{token, pem}).margin()
	shown := func(o *pluginLog, log *testplugin.Log) string {
		stack, _ := o.keptStack()
		return log.String() + "\n" + stack + "\n" + o.lastLine() + "\n" + string(o.kept())
	}
	for name, printed := range map[string]string{
		"plain":          "token " + token + " is bad\n",
		"twice":          token + token + "\n",
		"record":         `{"@message":"token p<ss\"w\\rd-41","also p\u003css\"w\\rd-41":"p\u003css\"w\\rd-41"}` + "\n",
		"quoted":         fmt.Sprintf("%q\n", token),
		"at the cut":     strings.Repeat("x", maxLine-3) + token + strings.Repeat("y", 100) + "\n",
		"before the cut": strings.Repeat("x", maxLine-len(token)) + token + "y\n",
		"at the tail":    token + strings.Repeat("z", keptOutput-3),
		"panic":          "panic: " + token + "\n",
		"at the stack's": "panic: x\n" + strings.Repeat("s", 100) + "\n" + strings.Repeat(strings.Repeat("t", 99)+"\n", (maxKeptStack-9-101-5)/100) + strings.Repeat("u", (maxKeptStack-9-101-5)%100) + token + "\n",
		// Only the part of a long line that is kept can show a secret at the cut.
		"where a stack's line is cut": "panic: " + strings.Repeat("x", held-len("panic: ")-5) + token + strings.Repeat("y", 100) + "\n" + token,
		"of several lines":            "key " + pem,
		"no end":                      "token " + token,
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{1, 5, 4096, len(printed)} {
				o, log := newTestLog(token, "xyz", pem)
				printIn(o, printed, size)
				all := shown(o, log)
				for _, part := range []string{"ss\"", `w\rd`, `w\\rd`, "rd-4", "p<s", "MIIEv", "w0BAQ"} {
					if strings.Contains(all, part) {
						t.Fatalf("in chunks of %d: %q is shown: %.3000q", size, part, all)
					}
				}
				if name != "at the tail" && !strings.Contains(all, redacted) {
					t.Errorf("in chunks of %d: nothing is redacted: %.3000q", size, all)
				}
			}
		})
	}
	if r := NewRedactor([]string{"", "short"}); len(r.secrets) > 0 {
		t.Error("short texts are taken for secrets")
	}
}

// TestSecretsThatOverlap: one in another, one that begins in another, one in
// itself.
func TestSecretsThatOverlap(t *testing.T) {
	r := NewRedactor([]string{"abcdef", "abcdefghi", "hi-123", "ababab"})
	for text, want := range map[string]string{
		"(abcdefghi)": "(<redacted>)", "(abcdefghi-123)": "(<redacted>)", "(abababab)": "(<redacted>)",
		"(abcdeabcdef)": "(abcde<redacted>)", "(abcdefg)": "(<redacted>g)", "": "",
	} {
		if got := r.Text(text); got != want {
			t.Errorf("%s without secrets is %s, want %s", text, got, want)
		}
	}
}
