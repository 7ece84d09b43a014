package launch

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// firstMemoryFD is the lowest number of the descriptor of a copy in memory. It is higher
// than the numbers of the descriptors that a child gets (standard input and so on), which
// would replace the memory's descriptor in the child.
const firstMemoryFD = 64

// newMemory makes a file in memory that can be sealed and executed.
func newMemory(name string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	low, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3, the flag MFD_EXEC does not exist and is not needed
		low, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	fd, err := unix.FcntlInt(uintptr(low), unix.F_DUPFD_CLOEXEC, firstMemoryFD)
	_ = unix.Close(low) // nothing was written to it yet
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// seal prevents every later change of a file in memory, by any process.
func seal(memory *os.File) error {
	_, err := unix.FcntlInt(memory.Fd(), unix.F_ADD_SEALS,
		unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	return os.NewSyscallError("fcntl", err)
}
