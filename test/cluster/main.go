//go:build linux

// Command cluster makes a Kubernetes of two nodes on this machine, for tests.
//
//	cluster build             builds the programs, unpacks containerd, and makes the images
//	cluster up                starts the nodes and waits until they are ready
//	cluster down              stops all of it and removes its files
//	cluster kubectl ARGS      runs kubectl against the nodes
//	cluster load FLAGS        calls a URL from a node and prints what the callers saw
//
// The life of the bed:
//
//  1. Build puts binaries into the cache folder of the user, by version. Only the first
//     build takes long.
//  2. Up starts three processes in namespaces of their own: the control plane and two
//     nodes. Each is PID 1 of its namespace and starts its daemons: etcd, the servers of
//     Kubernetes and Prometheus, or containerd, kubelet and kube-proxy. CoreDNS runs in
//     pods.
//  3. Down kills the three processes. The kernel then ends all others, and drops the
//     mounts and the networks.
//
// It needs Linux, root and Debian's apt-get. It changes nothing outside of its cache
// folder and /sys/fs/cgroup. The bed is not secure: its only user is the test.
//
// Open bed.go first.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		stop()
		os.Exit(1)
	}
}

// run runs a command of the command line.
func run(ctx context.Context, args []string) error {
	name := ""
	if len(args) > 0 {
		name = args[0]
	}
	switch name {
	case "init":
		return runInit(args[1])
	case "load":
		return loadMain(ctx, args[1:])
	}
	if why := cannotRun(); why != "" {
		return fmt.Errorf("cannot run here: %s", why)
	}
	b, err := newBed(os.Stderr)
	if err != nil {
		return err
	}
	switch name {
	case "build":
		return b.build(ctx)
	case "up":
		if err := b.build(ctx); err != nil {
			return err
		}
		return b.up(ctx)
	case "down":
		return b.down()
	case "kubectl":
		cmd := b.kubectl(ctx, args[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		return cmd.Run()
	}
	return fmt.Errorf("unknown command %q: build, up, down, kubectl or load", name)
}

// cannotRun returns the reason why there can be no bed on this machine, or "".
func cannotRun() string {
	if os.Geteuid() != 0 {
		return "it needs root"
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err.Error()
	}
	_, rest, _ := strings.Cut(string(status), "CapEff:")
	effective, err := strconv.ParseUint(strings.Fields(rest)[0], 16, 64)
	if err != nil {
		return err.Error()
	}
	for name, bit := range map[string]uint{"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21} {
		if effective>>bit&1 == 0 {
			return "it needs " + name
		}
	}
	for _, tool := range []string{"go", "ip", "nsenter", "apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "it needs " + tool
		}
	}
	if _, err := os.Stat("/sys/fs/cgroup"); err != nil {
		return "it needs cgroups"
	}
	return ""
}

// moduleDir returns the folder of this module: the working folder, or test/cluster in it.
func moduleDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, dir := range []string{wd, filepath.Join(wd, "test", "cluster")} {
		if _, err := os.Stat(filepath.Join(dir, "kube", "go.mod")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s is neither the repository nor test/cluster", wd)
}
