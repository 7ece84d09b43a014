package measure

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of /proc/stat: USER_HZ, which is 100 wherever Linux runs.
const tick = 10 * time.Millisecond

// BusyCPU is what all processors of the machine have been busy for since it
// started, what a hypervisor gave to others (steal) included.
func BusyCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(text)
}

// parseBusy reads the first line, of all processors: "cpu" and, in ticks, user,
// nice, system, idle, iowait, irq, softirq, steal and more, which is part of
// user.
func parseBusy(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) < 9 || words[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	const idle, iowait = 4, 5
	var busy time.Duration
	for i, word := range words[:9] {
		if i == 0 || i == idle || i == iowait {
			continue
		}
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat: %w", err)
		}
		busy += time.Duration(n) * tick
	}
	return busy, nil
}

// Process is one of the machine's, with the CPU time that it used.
type Process struct {
	PID  int
	Name string
	CPU  time.Duration
}

// processes are those that can be read, with their CPU time so far.
func processes() map[int]Process {
	found := map[int]Process{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, entry := range entries {
		pid, err := strconv.Atoi(filepath.Base(entry))
		if err != nil {
			continue
		}
		cpu, err := ProcessCPU(pid)
		if err != nil {
			continue // it has ended
		}
		name, _ := os.ReadFile(entry + "/comm")
		found[pid] = Process{PID: pid, Name: strings.TrimSpace(string(name)), CPU: cpu}
	}
	return found
}

// Busiest watches the machine and gives the n processes that used most CPU
// meanwhile, except those for which ours is true.
func Busiest(n int, watch time.Duration, ours func(pid int) bool) []Process {
	before := processes()
	time.Sleep(watch)
	var list []Process
	for pid, p := range processes() {
		if p.CPU -= before[pid].CPU; p.CPU > watch/100 && !ours(pid) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return int(b.CPU - a.CPU) })
	return list[:min(n, len(list))]
}

// Machine says where a measurement was made.
type Machine struct {
	CPUs   int    `json:"cpus"`
	Model  string `json:"model"`
	Memory int64  `json:"memory_bytes"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
}

// ThisMachine describes the machine; what it does not know stays empty.
func ThisMachine() Machine {
	m := Machine{CPUs: runtime.NumCPU(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				m.Model = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	return m
}
