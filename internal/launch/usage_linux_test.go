package launch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The content of /proc/PID/cgroup, and the files that may have the count.
func TestFilesThatCountOOMKills(t *testing.T) {
	for _, test := range []struct {
		name, membership string
		want             []string
	}{
		{"version 2", "0::/system.slice/serve.service\n", []string{"/cg/system.slice/serve.service/memory.events"}},
		{"version 2, in a container", "0::/\n", []string{"/cg/memory.events"}},
		{"version 1", "9:name=systemd:/user\n5:cpu,cpuacct:/a\n4:memory:/docker/0a:1\n", []string{"/cg/memory/docker/0a:1/memory.oom_control"}},
		{"both", "4:memory:/a\n0::/b\n", []string{"/cg/memory/a/memory.oom_control", "/cg/b/memory.events"}},
		{"none", "5:cpu:/\n", nil},
		{"not what it should be", "\nmemory\n4:memory\n", nil},
	} {
		if got := oomFiles("/cg", test.membership); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// The content of these files, before and after the end of a process.
func TestOOMKillsAreCounted(t *testing.T) {
	with := func(text, count string) string { return strings.Replace(text, "%", count, 1) }
	const (
		version2 = "low 0\nhigh 12\nmax 345\noom 7\noom_kill %\noom_group_kill 9\n"
		version1 = "oom_kill_disable 0\nunder_oom 0\noom_kill %\n"
	)
	for _, test := range []struct {
		name, before, after string
		want                oomKills
	}{
		{"version 2, none", with(version2, "3"), with(version2, "3"), oomNone},
		{"version 2, one", with(version2, "3"), with(version2, "4"), oomCounted},
		{"version 1, none", with(version1, "0"), with(version1, "0"), oomNone},
		{"version 1, two", with(version1, "0"), with(version1, "2"), oomCounted},
		{"an old kernel, which does not count", "oom_kill_disable 0\nunder_oom 0\n", "oom_kill_disable 0\nunder_oom 0\n", oomUnknown},
		{"not a number", with(version2, "many"), with(version2, "more"), oomUnknown},
		{"removed with its last process", with(version2, "3"), "", oomUnknown},
		{"never there", "", "", oomUnknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "memory.events")
			write := func(text string) {
				if err := os.RemoveAll(file); err != nil {
					t.Fatal(err)
				}
				if text == "" {
					return
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(test.before)
			counter := newOOMCounterOf([]string{file + ".other", file})
			write(test.after)
			if got := counter.since(); got != test.want {
				t.Errorf("since = %v, want %v", got, test.want)
			}
		})
	}
}
