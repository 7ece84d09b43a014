package launch

import (
	"debug/elf"
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

// program is the file that is executed: the plugin's own, or with a pin a copy of
// exactly the bytes that were hashed, in the plugin's private folder. One goroutine
// at a time uses it.
//
// The copy lies in memory that no process can write to any more, this process included,
// and belongs to the plugin alone after its start. It takes as much memory as the file has
// bytes, per process. The kernel cannot drop it like the pages of a file on disk, and
// counts it with the host's control group. A file that the kernel runs by an interpreter
// is copied to a file of the folder instead, because the interpreter opens the file again.
// Other processes of this user could still change that file.
type program struct {
	cmd  Command
	path string
	// memory is the sealed copy at path. It is nil if path is a file.
	memory *os.File
	// newMemory is the function newMemory, except in tests. A test uses memory that the
	// kernel does not execute.
	newMemory func(name string) (*os.File, error)
}

func newProgram(cmd Command) *program {
	return &program{cmd: cmd, path: cmd.Path, newMemory: newMemory}
}

// prepare makes the copy in folder if there is a pin.
func (p *program) prepare(folder *Folder) error {
	if len(p.cmd.Digest) == 0 {
		return nil
	}
	src, err := os.Open(p.cmd.Path)
	if err != nil {
		return launchError(ReasonOther, p.cmd.Path, "read the file for its pin: %w", err)
	}
	defer func() { _ = src.Close() }() // read only
	name := folder.executable(p.cmd.Path)
	memory, err := p.newMemory(filepath.Base(name))
	if err != nil { // memory is forbidden or not available, so a file is used
		return p.copyToFile(src, name)
	}
	if err := copyPinned(memory, src, p.cmd.Path, p.cmd.Digest); err != nil {
		_ = memory.Close() // nothing in it is wanted
		return err
	}
	if err := seal(memory); err != nil || !beginsWith(memory, elf.ELFMAG) { // the kernel itself loads only an ELF file
		defer func() { _ = memory.Close() }() // its content is copied
		return p.copyToFile(io.NewSectionReader(memory, 0, 1<<62), name)
	}
	// The kernel names the process by the last part of its path. Without this link, the name
	// in ps and in reports of the OOM killer would be a number.
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()), name); err != nil {
		_ = memory.Close() // nothing in it is wanted
		return launchError(ReasonEnvironment, p.cmd.Path, "name the copy of the file: %w", err)
	}
	p.path, p.memory = name, memory
	return nil
}

// executable returns the path of a copy in the folder. The copy has the file's own name,
// except if that name is reserved in the folder.
func (f *Folder) executable(path string) string {
	name := filepath.Base(path)
	if name == wire.SocketFolderLock || strings.HasPrefix(name, "plugin-dir") { // a name that go-plugin uses
		name = "plugin"
	}
	return filepath.Join(f.Path, name)
}

// copyToFile makes a file with the pinned bytes, which becomes the program.
func (p *program) copyToFile(src io.Reader, name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return launchError(ReasonEnvironment, p.cmd.Path, "copy the file for its pin: %w", err)
	}
	err = copyPinned(f, src, p.cmd.Path, p.cmd.Digest)
	if closed := f.Close(); err == nil && closed != nil {
		err = launchError(ReasonEnvironment, p.cmd.Path, "copy the file for its pin: %w", closed)
	}
	p.path, p.memory = name, nil
	return err
}

// copyInstead writes the program to a file, if a start failed with err because the
// kernel does not run programs from memory. It returns the file's path, or false.
func (p *program) copyInstead(err error) (path string, ok bool) {
	memory := p.memory
	if memory == nil || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ELOOP) {
		return "", false
	}
	defer func() { _ = memory.Close() }() // its content is copied
	name := p.path
	_ = os.Remove(name) // if the removal fails, the copy fails too
	err = p.copyToFile(io.NewSectionReader(memory, 0, 1<<62), name)
	return p.path, err == nil
}

// release frees the copy after the start, because the plugin then has its own reference
// to the memory. It may be called again.
func (p *program) release() {
	if p.memory != nil {
		_ = os.Remove(p.path)
		_ = p.memory.Close() // no plugin uses this descriptor, and nothing is written to it
		p.memory = nil
	}
}
