package datadogexporter

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"
)

// Headers by which an agent finds the container, whose tags it adds to spans.
// https://docs.datadoghq.com/containers/kubernetes/apm/#container-tags
const (
	headerContainer = "Datadog-Container-ID"
	headerEntity    = "Datadog-Entity-ID"
	headerExternal  = "Datadog-External-Env"
)

// containerHeaders says what container this process is in, as dd-trace-go does.
// Outside of one, and where the system does not tell, there are none.
func containerHeaders(external string) http.Header {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		cgroups = nil // no Linux
	}
	h := http.Header{}
	id := containerID(string(cgroups))
	entity := ""
	switch {
	case id != "":
		entity = "ci-" + id
	case !inHostNamespace():
		entity = inodeOf(cgroupFolders("/sys/fs/cgroup", string(cgroups)))
	}
	for name, value := range map[string]string{headerContainer: id, headerEntity: entity, headerExternal: external} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return h
}

// idInPath is what container runtimes end a cgroup's path with.
var idInPath = regexp.MustCompile(
	`([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{8}(?:-[0-9a-f]{4}){4}$|[0-9a-f]{64}|[0-9a-f]{32}-\d+)(?:.scope)?$`)

// containerID finds the id in the lines of a process's cgroups, "" if there is
// none: HIERARCHY:CONTROLLERS:PATH.
func containerID(cgroups string) string {
	for line := range strings.Lines(cgroups) {
		if _, after, ok := strings.Cut(line, ":"); ok {
			_, path, _ := strings.Cut(after, ":")
			if found := idInPath.FindStringSubmatch(strings.TrimSpace(path)); found != nil {
				return found[1]
			}
		}
	}
	return ""
}

// cgroupFolders are the folders whose inode stands for the container: that of the
// memory controller (cgroup 1), or the only one (2).
func cgroupFolders(mount, cgroups string) []string {
	var folders []string
	for _, controller := range []string{"memory", ""} {
		for line := range strings.Lines(cgroups) {
			if parts := strings.Split(strings.TrimSpace(line), ":"); len(parts) == 3 && parts[1] == controller {
				folders = append(folders, path.Join(mount, controller, parts[2]))
			}
		}
	}
	return folders
}

// inodeOf is the inode of the first folder that is there, in the agent's words.
func inodeOf(folders []string) string {
	for _, folder := range folders {
		if info, err := os.Stat(folder); err == nil {
			if stat, ok := info.Sys().(*syscall.Stat_t); ok {
				return fmt.Sprintf("in-%d", stat.Ino)
			}
		}
	}
	return ""
}

// hostNamespace is the inode that Linux gives the host's cgroup namespace.
const hostNamespace = 0xEFFFFFFB

// inHostNamespace tells whether the paths of cgroups are those of the host, so
// that an inode would be the host's own.
func inHostNamespace() bool {
	info, err := os.Stat("/proc/self/ns/cgroup")
	if err != nil {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Ino == hostNamespace
}
