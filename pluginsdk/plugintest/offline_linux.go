package plugintest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// setAttributes makes the kernel kill the plugin when this process dies, because a plugin
// under test may ignore SIGTERM. If offline is true, the plugin also gets a network of
// its own, without an active interface and with counters of its own.
func setAttributes(attr *syscall.SysProcAttr, offline bool) {
	attr.Pdeathsig = syscall.SIGKILL
	if !offline {
		return
	}
	attr.Cloneflags = syscall.CLONE_NEWNET
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		// Only root may create a network namespace. Any user may do so inside of a new user
		// namespace, which keeps the ids of user and group.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
}

// noNamespaces reports whether err is the error of a start that failed because this
// machine gives no process a network of its own.
func noNamespaces(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}

// networkUse returns the number of packets that a process without a network has tried to
// send. It counts sent packets, and packets without a route. All are the plugin's,
// because the kernel sends packets of its own only through an active interface.
func networkUse(pid int) (attempts int, err error) {
	v4, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp", pid))
	if err != nil {
		return 0, err
	}
	v6, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/snmp6", pid))
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6 has no such file
		return 0, err
	}
	return packetsSent(string(v4), string(v6)), nil
}

// packetsSent adds up the counters of packets in two files of /proc. The file for IPv4
// has a line of names and then a line of values, which both begin with "Ip:". The file
// for IPv6 has a name and a value on each line.
func packetsSent(v4, v6 string) (sum int) {
	add := func(name, value string) {
		switch name {
		case "OutRequests", "OutNoRoutes", "Ip6OutRequests", "Ip6OutNoRoutes":
			n, _ := strconv.Atoi(value) // a counter that is not a number counts as zero
			sum += n
		}
	}
	var names []string
	for line := range strings.Lines(v4) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != "Ip:" {
			continue
		}
		for i := range min(len(names), len(fields)) {
			add(names[i], fields[i])
		}
		names = fields
	}
	for line := range strings.Lines(v6) {
		if fields := strings.Fields(line); len(fields) == 2 {
			add(fields[0], fields[1])
		}
	}
	return sum
}
