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

// Trust is what is asked of a plugin's executable before it is run. The zero
// value asks that nobody but root and this user can change what would run.
type Trust struct {
	// Digest is the SHA-256 of the file's bytes, 32 of them; nil or empty for no
	// pin. With a pin it does not matter who can write the file: the bytes are
	// known.
	Digest []byte
	// AllowWritable takes a file that others can change.
	AllowWritable bool
}

// Check says in plain words what exec would say in numbers, and what trust asks:
// whether path can be a plugin's executable, whether others than root and this
// user can change it, and whether its bytes are the pinned ones (the whole file
// is read then). What it cannot see it leaves to exec. The error is an *Error;
// Start gives the same. Safe for concurrent use; it blocks as long as the disk.
func Check(path string, trust Trust) error {
	if err := look(path, trust); err != nil || len(trust.Digest) == 0 {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return launchError(ReasonOther, path, "read the file for its pin: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	return copyPinned(io.Discard, f, path, trust.Digest)
}

// look is Check without the bytes.
func look(path string, trust Trust) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return launchError(ReasonNotFound, path, "there is no such file; check the path, or build the plugin")
	case err != nil:
		return launchError(ReasonOther, path, "look at the file: %w", err)
	case info.IsDir():
		return launchError(ReasonNotExecutable, path, "this is a folder; name the plugin's executable")
	case !info.Mode().IsRegular():
		return launchError(ReasonNotExecutable, path, "this is no regular file (%v); name the plugin's executable", info.Mode().Type())
	case info.Mode()&0o111 == 0:
		return launchError(ReasonNotExecutable, path, "the file is not executable (mode %04o); if it is the plugin, run: chmod +x %s", info.Mode().Perm(), quote(path))
	case unix.Access(path, unix.X_OK) != nil:
		return notExecutable(path, info)
	case trust.AllowWritable || len(trust.Digest) > 0:
		return nil
	}
	steps, err := walk(path)
	var file unix.Stat_t
	if last := len(steps) - 1; err == nil && (unix.Stat(path, &file) != nil || file.Dev != steps[last].stat.Dev || file.Ino != steps[last].stat.Ino) {
		err = errors.New("they lead to another file: it was replaced just now, or the path is one of /proc; name the file itself")
	}
	if err != nil {
		return launchError(ReasonOther, path, "look at the folders above the file: %w", err)
	}
	if err := onlyOurs(steps, self()); err != nil {
		return launchError(ReasonUntrusted, path, "%w", err)
	}
	return nil
}

// notExecutable says why this process must not execute a file whose mode lets
// some user execute it.
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
		"the file is not executable by user %d, as whom this process runs (mode %04o%s); have its owner run: chmod a+x %s, or put a copy of that user's in another place",
		os.Getuid(), info.Mode().Perm(), owner, quote(path))
}

// copyPinned copies the file at path from src to dst and tells whether the
// bytes that were copied are those of the pin.
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

// copyChunk is what is read at once.
const copyChunk = 256 << 10

// onlyReader hides WriteTo, which would pass by the buffer and its size.
type onlyReader struct{ io.Reader }

// user is who this process runs as.
type user struct{ uid, gid uint32 }

func self() user { return user{uint32(os.Geteuid()), uint32(os.Getegid())} }

// trusts tells whether an owner is this user, or root.
func (u user) trusts(uid uint32) bool { return uid == 0 || uid == u.uid }

// onlyOurs tells whether others than root and u can change what the steps lead
// to, and if so how to end that.
func onlyOurs(steps []step, u user) error {
	const orElse = "or pin the plugin's bytes (@sha256:…), or set SERVE_TRACING_PLUGIN_WRITABLE=allow"
	for _, s := range steps {
		kind := "file"
		switch {
		case s.isLink():
			kind = "link"
		case s.isFolder():
			kind = "folder"
		}
		// The owner of a link cannot change it, only who can replace it can:
		// that is the folder's matter, or in one like /tmp the owner's.
		if !u.trusts(s.stat.Uid) && (!s.isLink() || s.inSticky) {
			return fmt.Errorf("the %s %s belongs to user %d, who chooses by it what runs as user %d; run: chown -h %d %s, %s",
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
		return fmt.Errorf("others can change the %s %s (mode %04o, user %d, group %d), and by it what runs as user %d; run: chmod %s-w %s, %s",
			kind, s.path, s.mode(), s.stat.Uid, s.stat.Gid, u.uid, who, quote(s.path), orElse)
	}
	return nil
}

// private tells whether a group is the one that many systems make for a user
// alone, under the same number, and with which an open umask does no harm.
func (u user) private(gid uint32) bool { return gid == u.gid && gid == u.uid }

// step is one thing on the way to a file: a folder, a link, or the file.
type step struct {
	path string
	stat unix.Stat_t
	// inSticky: it lies in a folder like /tmp, which many may write to and where
	// only the owner of a thing can replace it.
	inSticky bool
	// acl: it has an access control list, which may name anybody. What the mode
	// shows as the group's is then the most that those may do, and chmod g-w
	// takes it from them.
	acl bool
}

func (s step) isLink() bool   { return s.stat.Mode&unix.S_IFMT == unix.S_IFLNK }
func (s step) isFolder() bool { return s.stat.Mode&unix.S_IFMT == unix.S_IFDIR }
func (s step) isSticky() bool { return s.stat.Mode&unix.S_ISVTX != 0 }
func (s step) mode() uint64   { return wide(s.stat.Mode) & 0o7777 }

// mostLinks is how many links the kernel follows.
const mostLinks = 40

// walk goes the way from the root to path as the kernel does, and gives all that
// it meets: whoever can change one of them can change where the way ends. Each
// is followed by what it leads to; the last is the file.
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
	above := []step{root} // the folders that the way is in, none of them a link
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
			s.acl = err == nil // there is none, or no such thing here
		}
		steps = append(steps, s)
		if !s.isLink() {
			above = append(above, s)
			continue
		}
		if links++; links > mostLinks {
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

// quote writes a path as a shell wants it.
func quote(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool {
		return !strings.ContainsRune("/._-+:@%,=", r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	return path
}
