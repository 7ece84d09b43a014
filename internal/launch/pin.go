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

// program is the file that is executed. Without a pin, it is the plugin's own file. With a
// pin, it is a copy of exactly the bytes that were hashed. One goroutine at a time uses it.
//
// The copy of an ELF file lies in memory to which no process can write any more, not even
// this process. After the start, the plugin alone has this memory. Each process needs as
// much memory as the file has bytes. The kernel cannot free it under pressure like the pages
// of a file on disk, and counts it in the host's control group.
//
// The copy of a script is a file in the plugin's private folder, because the interpreter
// opens it by its path. Other processes of this user could still change this file.
type program struct {
	cmd  Command
	path string
	// memory is the sealed copy to which path leads. It is nil if path is a file on disk.
	memory *os.File
	// newMemory is the function newMemory of this package. A test replaces it by a function
	// that returns memory which the kernel does not execute.
	newMemory func(name string) (*os.File, error)
}

func newProgram(cmd Command) *program {
	return &program{cmd: cmd, path: cmd.Path, newMemory: newMemory}
}

// prepare makes a copy of the plugin's file for the private folder if there is a pin.
func (p *program) prepare(folder *Folder) error {
	if len(p.cmd.Digest) == 0 {
		return nil
	}
	src, err := os.Open(p.cmd.Path)
	if err != nil {
		return launchError(ReasonOther, p.cmd.Path, "read the file for its pin: %w", err)
	}
	defer func() { _ = src.Close() }() // an error has no effect: the file was only read
	name := folder.executable(p.cmd.Path)
	memory, err := p.newMemory(filepath.Base(name))
	if err != nil { // the system forbids or lacks such memory, so the copy is a file
		return p.copyToFile(src, name)
	}
	if err := copyPinned(memory, src, p.cmd.Path, p.cmd.Digest); err != nil {
		_ = memory.Close() // an error has no effect: the content is not used
		return err
	}
	if err := seal(memory); err != nil || !beginsWith(memory, elf.ELFMAG) { // an interpreter must open any other file by its path
		defer func() { _ = memory.Close() }() // an error has no effect: the content was copied to a file
		return p.copyToFile(io.NewSectionReader(memory, 0, 1<<62), name)
	}
	// The kernel names the process by the last part of its path. Without this link, the name
	// in ps and in reports of the OOM killer would be a number.
	if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", memory.Fd()), name); err != nil {
		_ = memory.Close() // an error has no effect: the content is not used
		return launchError(ReasonEnvironment, p.cmd.Path, "name the copy of the file: %w", err)
	}
	p.path, p.memory = name, memory
	return nil
}

// executable returns the path in the folder for a copy of the file at path. The copy has the
// same name as the file, unless that name is reserved in the folder.
func (f *Folder) executable(path string) string {
	name := filepath.Base(path)
	if name == wire.SocketFolderLock || strings.HasPrefix(name, "plugin-dir") { // reserved for the lock, and for a folder of go-plugin
		name = "plugin"
	}
	return filepath.Join(f.Path, name)
}

// copyToFile copies src to a new file, checks the pin, and makes the file the program to
// execute.
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

// copyInstead copies the program from memory to a file, if a start has failed with err
// because the kernel does not run programs from memory. It returns the path of the file, or
// false if the failure has another reason.
func (p *program) copyInstead(err error) (path string, ok bool) {
	memory := p.memory
	if memory == nil || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ELOOP) {
		return "", false
	}
	defer func() { _ = memory.Close() }() // an error has no effect: the content was copied to a file
	name := p.path
	_ = os.Remove(name) // a failure makes the next call fail, too
	err = p.copyToFile(io.NewSectionReader(memory, 0, 1<<62), name)
	return p.path, err == nil
}

// release frees this process's reference to the copy in memory. It is called after the start,
// when the plugin has a reference of its own. It may be called again.
func (p *program) release() {
	if p.memory != nil {
		_ = os.Remove(p.path)
		_ = p.memory.Close() // the plugin does not use this descriptor
		p.memory = nil
	}
}
