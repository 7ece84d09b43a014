package datadogexporter

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestContainerID(t *testing.T) {
	id := strings.Repeat("0a", 32)
	for lines, want := range map[string]string{
		"": "", "0::/": "", "0::/user.slice/session-1.scope": "", "no line": "",
		"12:memory:/docker/" + id + "\n":                                           id,
		"0::/kubepods.slice/cri-containerd-" + id + ".scope\n":                     id,
		"1:name=systemd:/nope\n2:pids:/docker/" + id:                               id,
		"9:perf_event:/ecs/task/" + strings.Repeat("0", 32) + "-123":               strings.Repeat("0", 32) + "-123",
		"10:freezer:/garden/6f265890-5165-7fab-6b52-18d1\n":                        "6f265890-5165-7fab-6b52-18d1",
		"3:cpu:/kubepods/pod3d274242-8ee0-11e9-a8a6-1e68d864ef1a/" + id + "/child": "",
	} {
		if got := containerID(lines); got != want {
			t.Errorf("%q: %q, want %q", lines, got, want)
		}
	}
}

// TestInode: where no id is told, the folder of the process's cgroup stands for
// the container.
func TestInode(t *testing.T) {
	mount := t.TempDir()
	folders := cgroupFolders(mount, "4:cpu:/x\n3:memory:/docker/a\n0::/b\n")
	if want := []string{filepath.Join(mount, "memory/docker/a"), filepath.Join(mount, "b")}; !slices.Equal(folders, want) {
		t.Errorf("folders are %q, want %q", folders, want)
	}
	if got := inodeOf(folders); got != "" {
		t.Errorf("inode is %q where there is no folder", got)
	}
	if err := os.Mkdir(folders[1], 0o700); err != nil {
		t.Fatal(err)
	}
	if got := inodeOf(folders); !strings.HasPrefix(got, "in-") {
		t.Errorf("inode is %q", got)
	}
	if got := containerHeaders("pod-1").Get(headerExternal); got != "pod-1" {
		t.Errorf("%s is %q", headerExternal, got)
	}
}
