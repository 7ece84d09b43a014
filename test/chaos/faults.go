package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// kind is a kind of fault.
type kind struct {
	name string
	// fits reports whether the fault applies to the plugin. Nil: it applies to the
	// service or the machine.
	fits func(*plugin) bool
	// begin and end start and end the fault and return a description. end is nil if
	// there is nothing to end.
	begin, end func(*stage, fault) (string, error)
}

func anyPlugin(*plugin) bool    { return true }
func launched(p *plugin) bool   { return !p.attached }
func weakPlugin(p *plugin) bool { return p.weak }

// kinds lists all kinds of faults. Their order is part of a seed's meaning.
var kinds = []kind{
	{name: "SIGKILL", fits: anyPlugin, begin: signalling(syscall.SIGKILL)},
	{name: "SIGTERM", fits: anyPlugin, begin: signalling(syscall.SIGTERM)},
	{name: "SIGSEGV", fits: anyPlugin, begin: signalling(syscall.SIGSEGV)},
	{name: "freeze and thaw", fits: anyPlugin, begin: signalling(syscall.SIGSTOP), end: signalling(syscall.SIGCONT)},
	{name: "freeze", fits: launched, begin: signalling(syscall.SIGSTOP)},
	{name: "flood of output", fits: weakPlugin, begin: requesting(floodPrefix)},
	{name: "poison batch", fits: weakPlugin, begin: requesting(poisonPrefix)},
	{name: "crash loop", fits: weakPlugin, begin: crashLoop, end: func(s *stage, f fault) (string, error) {
		return "", os.Remove(crashFile(s.plugins[f.plugin].path))
	}},
	{name: "other binary by rename, and SIGHUP", fits: launched, begin: swap, end: restore},
	{name: "junk by rename", fits: launched, begin: replaceByJunk, end: restore},
	{name: "junk written into the file", fits: launched, begin: overwrite, end: restore},
	{name: "binary deleted", fits: launched, begin: func(s *stage, f fault) (string, error) {
		return "", os.Remove(s.plugins[f.plugin].path)
	}, end: restore},
	{name: "binary made writable for all", fits: launched, begin: chmod(0o777), end: restore},
	{name: "binary made not executable", fits: launched, begin: chmod(0o644), end: restore},
	{name: "socket deleted", fits: anyPlugin, begin: deleteSocket},
	{name: "socket folder removed", fits: launched, begin: removeSocketFolder},
	{name: "memory limit", fits: anyPlugin, begin: toEach(limitMemory), end: toEach(unlimit)},
	{name: "no descriptors", fits: anyPlugin, begin: toEach(limitFiles), end: toEach(unlimit)},
	{name: "least priority", fits: anyPlugin, begin: toEach(func(pid int) error {
		return gone(syscall.Setpriority(syscall.PRIO_PROCESS, pid, 19))
	})},
	{name: "CPU hogs", begin: startHogs, end: endHogs},
	{name: "SIGHUP to the service", begin: func(s *stage, _ fault) (string, error) {
		return "", s.service.signal(syscall.SIGHUP)
	}},
}

// signalling returns a fault that sends a signal.
func signalling(sig syscall.Signal) func(*stage, fault) (string, error) {
	return toEach(func(pid int) error { return gone(syscall.Kill(pid, sig)) })
}

// gone ignores the error that a process has ended meanwhile.
func gone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// toEach applies do to all processes of the plugin; there are two during a reload.
func toEach(do func(pid int) error) func(*stage, fault) (string, error) {
	return func(s *stage, f fault) (string, error) {
		pids := s.place.processes(s.plugins[f.plugin].path)
		var errs []error
		for _, pid := range pids {
			errs = append(errs, do(pid))
		}
		return fmt.Sprintf("processes %v", pids), errors.Join(errs...)
	}
}

// requesting sends a request with an id that the recorder recognises.
func requesting(prefix string) func(*stage, fault) (string, error) {
	return func(s *stage, f fault) (string, error) {
		id := prefix + strconv.FormatUint(f.pick, 16)
		s.load.extra(id)
		return "request " + id, nil
	}
}

func crashLoop(s *stage, f fault) (string, error) {
	p := s.plugins[f.plugin]
	when := []string{crashAtStart, crashAtBatch}[f.pick%2]
	if err := os.WriteFile(crashFile(p.path), []byte(when), 0o600); err != nil {
		return "", err
	}
	text, err := signalling(syscall.SIGKILL)(s, f)
	return "at " + when + ", " + text, err
}

// swap replaces the executable by an equivalent one: the same bytes and some more.
func swap(s *stage, f fault) (string, error) {
	p := s.plugins[f.plugin]
	good, err := os.ReadFile(p.good)
	if err != nil {
		return "", err
	}
	other := append(good, strconv.FormatUint(f.pick, 16)...)
	return "", errors.Join(replace(p.path, other, 0o755), s.service.signal(syscall.SIGHUP))
}

func junk(pick uint64) []byte { return bytes.Repeat([]byte(strconv.FormatUint(pick, 16)), 1000) }

func replaceByJunk(s *stage, f fault) (string, error) {
	return "", replace(s.plugins[f.plugin].path, junk(f.pick), 0o755)
}

// overwrite writes into the executable itself, which the kernel refuses while it runs.
func overwrite(s *stage, f fault) (string, error) {
	err := os.WriteFile(s.plugins[f.plugin].path, junk(f.pick), 0o755)
	if errors.Is(err, syscall.ETXTBSY) || errors.Is(err, os.ErrNotExist) {
		return err.Error(), nil
	}
	return "", err
}

func chmod(mode os.FileMode) func(*stage, fault) (string, error) {
	return func(s *stage, f fault) (string, error) {
		err := os.Chmod(s.plugins[f.plugin].path, mode)
		if errors.Is(err, os.ErrNotExist) {
			return err.Error(), nil
		}
		return "", err
	}
}

func restore(s *stage, f fault) (string, error) { return "", s.plugins[f.plugin].restore() }

// replace atomically replaces a file.
func replace(path string, data []byte, mode os.FileMode) error {
	fresh := path + ".fresh"
	if err := os.WriteFile(fresh, data, mode); err != nil {
		return err
	}
	return errors.Join(os.Chmod(fresh, mode), os.Rename(fresh, path)) // chmod, because of the umask
}

// deleteSocket removes the socket's file. An open connection is not affected. The
// attached plugin is ended, too, because new connections to it are impossible.
func deleteSocket(s *stage, f fault) (string, error) {
	p := s.plugins[f.plugin]
	if p.attached {
		err := os.Remove(p.socket)
		text, ended := signalling(syscall.SIGTERM)(s, f)
		if errors.Is(err, os.ErrNotExist) {
			err = nil // the plugin is about to start
		}
		return text, errors.Join(err, ended)
	}
	dirs := s.place.socketFolders(p.path)
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Type() == os.ModeSocket {
				_ = os.Remove(path) // the owner may have removed it
			}
			return nil
		})
	}
	return fmt.Sprintf("in %v", dirs), nil
}

func removeSocketFolder(s *stage, f fault) (string, error) {
	dirs := s.place.socketFolders(s.plugins[f.plugin].path)
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, os.RemoveAll(dir))
	}
	return fmt.Sprint(dirs), errors.Join(errs...)
}

// startHogs starts a busy process for each CPU.
func startHogs(s *stage, _ fault) (string, error) {
	for range runtime.NumCPU() {
		hog := exec.Command(s.place.path(roleHog))
		hog.Env = s.place.environ()
		if err := hog.Start(); err != nil {
			return "", err
		}
		s.hogs = append(s.hogs, hog)
	}
	return fmt.Sprintf("%d of them", runtime.NumCPU()), nil
}

func endHogs(s *stage, _ fault) (string, error) {
	for _, hog := range s.hogs {
		_ = hog.Process.Kill() // hogs never end by themselves
		_ = hog.Wait()         // the error says that it was killed
	}
	s.hogs = nil
	return "", nil
}
