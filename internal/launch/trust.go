package launch

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Trust holds the conditions on a plugin's executable. The zero value demands that only
// root and this user can change it.
type Trust struct {
	// Digest is the SHA-256 of the file, 32 bytes, or empty for no pin. With a pin, write
	// permissions of the file do not matter. The pin does not cover other files that the
	// plugin loads, such as libraries, or the interpreter of a script.
	Digest []byte
	// AllowWritable accepts files that other users can change.
	AllowWritable bool
	// Imports are folders from which the plugin loads code. Only root and this user may
	// have permission to change them. A folder that does not exist is ignored.
	Imports []string
}

// Check returns an error if the file at path cannot be a plugin's executable. The reason is
// its kind, its permissions, another user that can change it, or a digest that differs from
// the pin. With a pin, Check reads the whole file. The error is an *Error, as from Start.
// Check is safe for concurrent use, and blocks until the disk answers.
func Check(path string, trust Trust) error {
	if err := checkFile(path, trust); err != nil || len(trust.Digest) == 0 {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return launchError(ReasonOther, path, "read the file for its pin: %w", err)
	}
	defer func() { _ = f.Close() }() // an error has no effect: the file was only read
	return copyPinned(io.Discard, f, path, trust.Digest)
}

// checkFile does the checks of Check, except the check of the digest.
func checkFile(path string, trust Trust) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return launchError(ReasonNotFound, path, "there is no such file; check the path, or build the plugin")
	case err != nil:
		return launchError(ReasonOther, path, "check the file: %w", err)
	case info.IsDir():
		return launchError(ReasonNotExecutable, path, "this is a folder; name the plugin's executable")
	case !info.Mode().IsRegular():
		return launchError(ReasonNotExecutable, path, "this is not a regular file (%v); name the plugin's executable", info.Mode().Type())
	case info.Mode()&0o111 == 0:
		return launchError(ReasonNotExecutable, path, "the file is not executable (mode %04o); if it is the plugin, run: chmod +x %s", info.Mode().Perm(), quote(path))
	case unix.Access(path, unix.X_OK) != nil:
		return notExecutable(path, info)
	case trust.AllowWritable:
		return nil
	case len(trust.Digest) > 0:
		return trust.imports(path)
	}
	steps, err := walk(path)
	var file unix.Stat_t
	if last := len(steps) - 1; err == nil && (unix.Stat(path, &file) != nil || file.Dev != steps[last].stat.Dev || file.Ino != steps[last].stat.Ino) {
		err = errors.New("they lead to another file: it was replaced just now, or the path is one of /proc; name the file itself")
	}
	if err != nil {
		return launchError(ReasonOther, path, "check the folders above the file: %w", err)
	}
	if err := onlyOurs(steps, self(), orElse); err != nil {
		return launchError(ReasonUntrusted, path, "%w", err)
	}
	return trust.imports(path)
}

// imports returns an error if other users can change a folder from which the plugin at
// path loads code.
func (t Trust) imports(path string) error {
	for _, dir := range t.Imports {
		steps, err := walk(dir)
		if err != nil {
			continue // the folder does not exist, and Python ignores such a folder
		}
		last := steps[len(steps)-1]
		if err = onlyOurs(steps, self(), orElseImports); err == nil && last.isSticky() && last.stat.Mode&unix.S_IWOTH != 0 {
			err = fmt.Errorf("every user can put files into the folder %s (mode %04o); run: chmod o-w %s, %s", last.path, last.mode(), quote(last.path), orElseImports)
		}
		if err != nil {
			return launchError(ReasonUntrusted, path, "it loads modules from %s: %w", dir, err)
		}
	}
	return nil
}

// notExecutable returns the error for a file that this process must not execute, although
// the mode of the file has an execute permission.
func notExecutable(path string, info fs.FileInfo) error {
	if mountedNoexec(path) {
		return launchError(ReasonNotExecutable, path,
			"its file system is mounted noexec, so that nothing on it can be executed; put the plugin on another file system, or remount that one with exec (see: findmnt -T %s)", quote(path))
	}
	owner := ""
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = fmt.Sprintf(", of user %d and group %d", stat.Uid, stat.Gid)
	}
	return launchError(ReasonNotExecutable, path,
		"the file is not executable by user %d of this process (mode %04o%s); have its owner run: chmod a+x %s, or put a copy that this user owns in another place",
		os.Getuid(), info.Mode().Perm(), owner, quote(path))
}

// copyPinned copies src to dst, and returns an error if the copied bytes do not have the
// digest. path is used only in errors.
func copyPinned(dst io.Writer, src io.Reader, path string, digest []byte) error {
	hash := sha256.New()
	if _, err := io.CopyBuffer(io.MultiWriter(hash, dst), onlyReader{src}, make([]byte, copyChunk)); err != nil {
		return launchError(ReasonEnvironment, path, "copy the file for its pin: %w", err)
	}
	if got := hash.Sum(nil); !bytes.Equal(got, digest) {
		return launchError(ReasonUntrusted, path,
			"its bytes are not the pinned ones: the file has sha256:%x, the pin is sha256:%x; put the right file there, or the file's digest into the list", got, digest)
	}
	return nil
}

// copyChunk is the size of a read, in bytes.
const copyChunk = 256 << 10

// onlyReader hides the method WriteTo of a file, so that io.CopyBuffer uses its buffer.
type onlyReader struct{ io.Reader }

// user is the user and the group of this process.
type user struct{ uid, gid uint32 }

func self() user { return user{uint32(os.Geteuid()), uint32(os.Getegid())} }

// trusts reports whether an owner is this user or root.
func (u user) trusts(uid uint32) bool { return uid == 0 || uid == u.uid }

// Alternatives to the command in an error, which changes the owner or the permissions. orElse
// is for an executable, orElseImports for a folder from which a plugin loads code.
const (
	orElse        = "or pin the plugin's bytes (@sha256:…), or set SERVE_TRACING_PLUGIN_WRITABLE=allow"
	orElseImports = "or use another folder, or set SERVE_TRACING_PLUGIN_WRITABLE=allow"
)

// onlyOurs returns an error if users other than root and u can change one of the steps of a
// path, and so the file at its end. orElse is the end of the advice in the error.
func onlyOurs(steps []step, u user, orElse string) error {
	for _, s := range steps {
		kind := "file"
		switch {
		case s.isLink():
			kind = "link"
		case s.isFolder():
			kind = "folder"
		}
		// A link cannot be changed, only replaced: with write permission for its folder, or
		// in a folder like /tmp by its owner.
		if !u.trusts(s.stat.Uid) && (!s.isLink() || s.inSticky) {
			return fmt.Errorf("the %s %s belongs to user %d, who can therefore replace the program that runs as user %d; run: chown -h %d %s, %s",
				kind, s.path, s.stat.Uid, u.uid, u.uid, quote(s.path), orElse)
		}
		who := ""
		if s.stat.Mode&unix.S_IWGRP != 0 && (s.acl || !u.private(s.stat.Gid)) {
			who += "g"
		}
		if s.stat.Mode&unix.S_IWOTH != 0 {
			who += "o"
		}
		if who == "" || s.isLink() || s.isFolder() && s.isSticky() {
			continue
		}
		return fmt.Errorf("others can change the %s %s (mode %04o, user %d, group %d), and so the program that runs as user %d; run: chmod %s-w %s, %s",
			kind, s.path, s.mode(), s.stat.Uid, s.stat.Gid, u.uid, who, quote(s.path), orElse)
	}
	return nil
}

// private reports whether u is the only member of a group. On many systems, each user has such
// a group, with the same number as the user.
func (u user) private(gid uint32) bool { return gid == u.gid && gid == u.uid }

// step is a part of the path to a file: a folder, a link, or the file.
type step struct {
	path string
	stat unix.Stat_t
	// inSticky is set if the step is in a folder like /tmp, in which only the owner of a file
	// can replace the file.
	inSticky bool
	// acl is set if the step has an access control list, which may give permissions to any
	// user. The group bits of the mode are then the upper limit of these permissions, and
	// chmod g-w removes the permission to write.
	acl bool
}

func (s step) isLink() bool   { return s.stat.Mode&unix.S_IFMT == unix.S_IFLNK }
func (s step) isFolder() bool { return s.stat.Mode&unix.S_IFMT == unix.S_IFDIR }
func (s step) isSticky() bool { return s.stat.Mode&unix.S_ISVTX != 0 }
func (s step) mode() uint64   { return wide(s.stat.Mode) & 0o7777 }

// maxLinks is the number of links that the kernel follows in a path.
const maxLinks = 40

// walk resolves path from the root like the kernel. It returns the folders and links on the
// way, in order, and the file as the last step. A user with permission to change a step can
// make path lead to another file.
func walk(path string) ([]step, error) {
	rest := path
	if !strings.HasPrefix(path, "/") {
		wd, err := os.Getwd()
		if err != nil {
			return nil, err
		}
		rest = wd + "/" + path
	}
	root := step{path: "/"}
	if err := unix.Lstat("/", &root.stat); err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: "/", Err: err}
	}
	steps := []step{root}
	above := []step{root} // the current folder and its parents, with links resolved
	for links := 0; rest != ""; {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch name {
		case "", ".":
			continue
		case "..":
			above = above[:max(1, len(above)-1)]
			continue
		}
		folder := above[len(above)-1]
		s := step{path: strings.TrimSuffix(folder.path, "/") + "/" + name, inSticky: folder.isSticky()}
		if err := unix.Lstat(s.path, &s.stat); err != nil {
			return nil, &fs.PathError{Op: "lstat", Path: s.path, Err: err}
		}
		if !s.isLink() {
			_, err := unix.Lgetxattr(s.path, "system.posix_acl_access", nil)
			s.acl = err == nil // Lgetxattr fails if there is no list
		}
		steps = append(steps, s)
		if !s.isLink() {
			above = append(above, s)
			continue
		}
		if links++; links > maxLinks {
			return nil, &fs.PathError{Op: "follow", Path: s.path, Err: unix.ELOOP}
		}
		target, err := os.Readlink(s.path)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(target, "/") {
			above = above[:1]
		}
		rest = target + "/" + rest
	}
	return steps, nil
}

// quote quotes a path for a shell.
func quote(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%,=", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
