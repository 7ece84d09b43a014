package host_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/test/testplugin"
)

// hostLink is the name under which the test binary runs as a program with a
// Host, which is then killed.
const hostLink = "testhost"

// runAsHost is that program: it starts the plugin named by its argument, prints
// the plugin's process id and waits to be killed.
func runAsHost() {
	if filepath.Base(os.Args[0]) != hostLink {
		return
	}
	h, err := host.New(host.Config{Plugins: "p=" + os.Args[1]}, host.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		os.Exit(2)
	}
	if err := h.Start(context.Background()); err != nil {
		os.Exit(2)
	}
	for h.Stats().Exporters[0].PID == 0 {
		<-time.After(5 * time.Millisecond)
	}
	if _, err := fmt.Fprintln(os.Stdout, h.Stats().Exporters[0].PID); err != nil {
		os.Exit(2)
	}
	select {}
}

func TestPluginDiesWithItsHost(t *testing.T) {
	for _, mode := range []string{"record", "child"} {
		t.Run(mode, func(t *testing.T) {
			link := filepath.Join(t.TempDir(), hostLink)
			exe, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(exe, link); err != nil {
				t.Fatal(err)
			}
			path := testplugin.Install(t, mode)
			sockets := testplugin.SocketFolder(t)
			program := exec.Command(link, path)
			program.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+sockets)
			out, err := program.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			var pid int
			if _, err := fmt.Sscan(strings.TrimSpace(line), &pid); err != nil {
				t.Fatalf("the program said %q: %v", line, err)
			}
			if testplugin.Gone(pid) {
				t.Fatalf("plugin %d is gone before its host", pid)
			}
			if err := program.Process.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			_ = program.Wait() // killed, as wanted
			testplugin.WaitFor(t, "the plugin's end", func() bool { return testplugin.Gone(pid) })
			testplugin.WaitFor(t, "an empty folder of sockets", func() bool {
				left, err := os.ReadDir(sockets)
				return err == nil && len(left) == 0
			})
			if mode == "child" {
				grandchild := testplugin.Received(t, path)[0].PID
				testplugin.WaitFor(t, "the grandchild's end", func() bool { return testplugin.Gone(grandchild) })
			}
		})
	}
}
