package launch

import (
	"fmt"
	"hash/fnv"

	"golang.org/x/sys/unix"
)

// Identity identifies a state of an executable without its content. Two values are equal
// (==) if the path leads to the same file, with the same size, times and mode, through the
// same folders and links, with the same owners and modes, and the same folders with access
// control lists. The value does not cover Trust.Imports. The zero value means that there is
// no file.
type Identity struct {
	dev, inode   uint64
	size         int64
	mtime, ctime unix.Timespec
	mode         uint64
	// way is a hash of the folders and links in the path.
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

// wide converts a number of a stat result. The width of such numbers differs between
// systems.
func wide[T int32 | uint16 | uint32 | uint64](n T) uint64 { return uint64(n) }
