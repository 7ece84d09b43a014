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
// under test may ignore SIGTERM. If offline is true, the plugin gets a network of its own,
// without an active interface, and with separate counters.
func setAttributes(attr *syscall.SysProcAttr, offline bool) {
	attr.Pdeathsig = syscall.SIGKILL
	if !offline {
		return
	}
	attr.Cloneflags = syscall.CLONE_NEWNET
	if uid, gid := os.Geteuid(), os.Getegid(); uid != 0 {
		// Only root may create a network namespace. In a user namespace of its own, the plugin
		// may, too. It maps the current user and group to themselves.
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
	}
}

// noNamespaces reports whether a start failed because this machine does not allow a process
// a network of its own.
func noNamespaces(err error) bool {
	return errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS)
}

// networkUse returns the number of packets that a process started offline has tried to
// send: packets that left, and packets without a route. The kernel itself sends no IPv6
// packets there, because that needs an active interface.
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

// packetsSent adds up the counters of packets sent. IPv4's file has a line of names
// and a line of values, both of which begin with "Ip:". IPv6's file has a name and a
// value on each line.
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
