package testplugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/servetrace/servetrace/pluginsdk"
)

// noiseModes are good plugins that print. Their argument is the kind and the amount:
// "bytes-N" without a newline, "lines-N", "wide-N" lines of 70 KiB, "line-N" for a line
// of N bytes, "junk-N" bytes of all values. Half is printed to each of the descriptors
// 1 and 2, and then Printed.
var noiseModes = map[string]func(arg string){
	// Before the handshake.
	"early": func(arg string) { printAll(arg, os.Stdout, os.Stderr); exporter(record) },
	// From the first batch on, while it delivers. Then it records a batch with the ID
	// Printed.
	"chatty": chatty,
	// In an init function, as libraries do.
	initPrint: func(string) { exporter(record) },
	// Logs a secret in many ways, and panics with it at the first batch.
	"leaky": leaky,
	// Prints its argument, with newlines for tildes, to descriptor 2 and kills itself
	// by SIGKILL at the first batch.
	"lastwords": lastWords,
	// The same to its host's standard output, without a newline at the end.
	"print": printAndDie,
}

// Printed is the last output of a plugin, and the ID of the batch that it records then.
const Printed = "all is printed"

// initPrint is a mode.
const initPrint = "initprint"

func init() {
	if filepath.Base(os.Args[0]) == prefix+initPrint {
		say(os.Stdout, "a library greets from init\n")
	}
}

func chatty(arg string) {
	stdout, stderr := os.NewFile(1, "stdout"), os.NewFile(2, "stderr") // the SDK redirects os.Stdout
	var once sync.Once
	exporter(func(ctx context.Context, b *pluginsdk.Batch) error {
		err := record(ctx, b)
		once.Do(func() {
			go func() { // ends with the process at the latest
				printAll(arg, stdout, stderr)
				if appendRecord(Batch{ID: Printed, PID: os.Getpid()}) != nil {
					os.Exit(4)
				}
			}()
		})
		return err
	})
}

// printAll prints to both files concurrently, like threads of a program.
func printAll(arg string, stdout, stderr *os.File) {
	what, count, _ := strings.Cut(arg, "-")
	var both sync.WaitGroup
	for _, f := range []*os.File{stdout, stderr} {
		both.Go(func() {
			printSome(f, what, number(count)/2)
			say(f, "\n"+Printed+"\n")
		})
	}
	both.Wait()
}

func printSome(f *os.File, what string, n int) {
	const block = 64 << 10
	switch what {
	case "lines":
		for i := range n {
			say(f, fmt.Sprintf("line %d of the many\n", i))
		}
	case "wide":
		for range n {
			say(f, strings.Repeat("wide ", 14<<10)+"\n")
		}
	case "line":
		say(f, strings.Repeat("x", n)+"\n")
	case "bytes":
		for ; n > 0; n -= block {
			say(f, strings.Repeat("y", min(n, block)))
		}
	case "junk":
		junk, state := make([]byte, block), uint64(1)
		for ; n > 0; n -= block {
			for i := 0; i < len(junk); i += 8 {
				state ^= state << 13 // xorshift
				state ^= state >> 7
				state ^= state << 17
				binary.LittleEndian.PutUint64(junk[i:], state)
			}
			say(f, string(junk[:min(n, block)]))
		}
	}
}

// leaky has a secret in its environment.
func leaky(string) {
	secret := os.Getenv("TESTPLUGIN_SECRET")
	exporter(func(context.Context, *pluginsdk.Batch) error {
		say(os.Stderr, "the token is "+secret+"\n")
		say(os.Stderr, fmt.Sprintf(`{"@level":"warn","@message":"token %s","error":"%s is refused"}`+"\n", secret, secret))
		for _, half := range []string{secret[:len(secret)/2], secret[len(secret)/2:] + "\n"} {
			say(os.Stderr, half)
		}
		long := strings.Repeat("z", 8<<10-len(secret)/2) // where a line is cut
		say(os.Stderr, long+secret+long+"\n")
		go func() { panic("refused: " + secret) }()
		select {}
	})
}

func printAndDie(arg string) {
	printing := spec(nil)
	printing.Exporter = func(_ context.Context, s pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return pluginsdk.ExportFunc(func(context.Context, *pluginsdk.Batch) error {
			if _, err := io.WriteString(s.Stdout, strings.ReplaceAll(arg, "~", "\n")); err != nil {
				return err
			}
			return syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}), nil
	}
	pluginsdk.Main(printing)
}

func lastWords(arg string) {
	exporter(func(context.Context, *pluginsdk.Batch) error {
		say(os.Stderr, strings.ReplaceAll(arg, "~", "\n")+"\n")
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}
