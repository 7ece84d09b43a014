package plugintest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes put a plugin into a process group of its own and have the kernel
// kill it with this process: it may be one that heeds nothing else. offline gives it a network without an interface
// that is up, and with counters of its own.
func attributes(offline bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if !offline {
		return attr
	}
	attr.Cloneflags = syscall.CLONE_NEWNET
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		// Only root may have a network of its own, so it is root of a namespace
		// in which everybody is who he was.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
	return attr
}

// noNamespaces tells whether a start failed because this machine gives out no
// networks.
func noNamespaces(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}

// networkUse counts what a process started offline has tried to send: packets
// that left, and those that found no way out.
func networkUse(pid int) (attempts int, err error) {
	for _, file := range []string{"snmp", "snmp6"} {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err != nil {
			if file == "snmp6" && errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
				continue
			}
			return 0, err
		}
		if file == "snmp" {
			attempts += countersV4(string(data))
		} else {
			attempts += countersV6(string(data))
		}
	}
	return attempts, nil
}

// countersV4 reads the two lines, of names and of values, that begin with
// "Ip:".
func countersV4(text string) int {
	var names []string
	sum := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names[:min(len(names), len(fields))] {
			if name == "OutRequests" || name == "OutNoRoutes" {
				sum += number(fields[i])
			}
		}
	}
	return sum
}

// countersV6 reads lines of a name and a value. What is sent by itself, for
// neighbours and routers, needs an interface that is up.
func countersV6(text string) int {
	sum := 0
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && (fields[0] == "Ip6OutRequests" || fields[0] == "Ip6OutNoRoutes") {
			sum += number(fields[1])
		}
	}
	return sum
}

func number(text string) int {
	n := 0
	if _, err := fmt.Sscan(text, &n); err != nil {
		return 0 // a counter that is no number counts nothing
	}
	return n
}

// awaitEnd blocks until a child has ended, without reaping it: until then its
// id, which is its group's, can not be given to another.
func awaitEnd(cmd *exec.Cmd) {
	for {
		err := unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
