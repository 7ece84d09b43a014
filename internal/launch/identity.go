package launch

import (
	"fmt"
	"hash/fnv"

	"golang.org/x/sys/unix"
)

// Identity detects changes of an executable without reading the file. Two values are equal
// (==) if the file has the same inode, size, times and mode, and if its path leads through
// the same folders and links. Their owners, their modes, and the presence of access control
// lists must be the same, too. The folders of Trust.Imports are not covered. The zero value
// means that there is no file.
type Identity struct {
	dev, inode   uint64
	size         int64
	mtime, ctime unix.Timespec
	mode         uint64
	// way is a hash of the folders and links in the path, with their owners and modes.
	way uint64
}

// Identify returns the identity of the file at a path, or the error of the file system. It
// does not read the file. It blocks until the disk answers.
func Identify(path string) (Identity, error) {
	steps, err := walk(path)
	if err != nil {
		return Identity{}, err
	}
	hash := fnv.New64a()
	for _, s := range steps[:len(steps)-1] {
		_, _ = fmt.Fprintf(hash, "%q %d %d %d %d %d %t\n", s.path, s.stat.Dev, s.stat.Ino, s.stat.Mode, s.stat.Uid, s.stat.Gid, s.acl) // never fails
	}
	file := steps[len(steps)-1].stat
	return Identity{
		dev: wide(file.Dev), inode: file.Ino, size: file.Size,
		mtime: file.Mtim, ctime: file.Ctim, mode: wide(file.Mode), way: hash.Sum64(),
	}, nil
}

// wide converts a number of a stat result to 64 bits. The types of these numbers differ
// between operating systems.
func wide[T int32 | uint16 | uint32 | uint64](n T) uint64 { return uint64(n) }
