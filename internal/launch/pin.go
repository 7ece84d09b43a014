package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/servetrace/servetrace/internal/wire"
)

// program is what is executed: the file itself, or for one with a pin a copy of
// exactly the bytes that were hashed, in the plugin's private folder. It is
// touched by one goroutine at a time: that of Start, then live.
//
// The copy lies in memory that nobody can write to any more, this process
// included, and belongs to the plugin alone from its start on: it takes as much
// memory as the file has bytes, per process, which can not be dropped as the
// pages of a file on disk can, and is counted with the host's control group. A
// file that the kernel runs by an interpreter is copied to a file of the folder
// instead, because the interpreter opens it again: other processes of this
// user could still change that.
type program struct {
	path string
	// memory is the sealed copy that path leads to; nil if path is a file.
	memory *os.File
}

// prepare makes ready what is executed.
func (p *process) prepare() error {
	p.program = program{path: p.cmd.Path}
	if len(p.cmd.Digest) == 0 {
		return nil
	}
	src, err := os.Open(p.cmd.Path)
	if err != nil {
		return launchError(ReasonOther, p.cmd.Path, "read the file for its pin: %w", err)
	}
	defer func() { _ = src.Close() }() // read only
	name := p.folder.executable(p.cmd.Path)
	memory, err := p.newMemory(filepath.Base(name))
	if err != nil { // forbidden here, or not to be had: a file does
		return p.copyToFile(src, name)
	}
	if err := copyPinned(memory, src, p.cmd.Path, p.cmd.Digest); err != nil {
		_ = memory.Close() // nothing in it is wanted
		return err
	}
	if err := seal(memory); err != nil || !isELF(memory) {
		defer func() { _ = memory.Close() }() // copied
		return p.copyToFile(io.NewSectionReader(memory, 0, 1<<62), name)
	}
	// By a name, for the kernel calls the process by the last part of its path,
	// which would be a number: so it is called in ps, and when memory runs out.
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()), name); err != nil {
		_ = memory.Close() // nothing in it is wanted
		return launchError(ReasonEnvironment, p.cmd.Path, "name the copy of the file: %w", err)
	}
	p.program = program{path: name, memory: memory}
	return nil
}

// executable is the path of a copy: in the folder, under the file's own name.
func (f *folder) executable(path string) string {
	name := filepath.Base(path)
	if name == wire.SocketFolderLock || strings.HasPrefix(name, "plugin-dir") { // go-plugin's
		name = "plugin"
	}
	return filepath.Join(f.path, name)
}

// copyToFile makes a file the program, with the pinned bytes.
func (p *process) copyToFile(src io.Reader, name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return launchError(ReasonEnvironment, p.cmd.Path, "copy the file for its pin: %w", err)
	}
	err = copyPinned(f, src, p.cmd.Path, p.cmd.Digest)
	if closed := f.Close(); err == nil && closed != nil {
		err = launchError(ReasonEnvironment, p.cmd.Path, "copy the file for its pin: %w", closed)
	}
	p.program = program{path: name}
	return err
}

// copyInstead tells whether a start failed because the kernel does not run
// memory here, and makes a file of it, to be started instead.
func (p *process) copyInstead(err error) bool {
	memory := p.program.memory
	if memory == nil || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ELOOP) {
		return false
	}
	defer func() { _ = memory.Close() }() // copied
	name := p.program.path
	_ = os.Remove(name) // if it is still there the copy fails, and says so
	return p.copyToFile(io.NewSectionReader(memory, 0, 1<<62), name) == nil
}

// letGoOfProgram gives back what was needed only until the program was started: from
// now on the memory is the plugin's.
func (p *process) letGoOfProgram() {
	if memory := p.program.memory; memory != nil {
		_ = os.Remove(p.program.path)
		_ = memory.Close() // not the plugin's: sealed, nothing to write
	}
}

// isELF tells whether the kernel loads the program itself.
func isELF(f io.ReaderAt) bool {
	head := make([]byte, 4)
	_, err := f.ReadAt(head, 0)
	return err == nil && bytes.Equal(head, []byte("\x7fELF"))
}
