package launch

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAccessListIsSeen: another user may write the file, which the mode shows
// as a right of the group.
func TestAccessListIsSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	const anybody = ^uint32(0)
	folder := filepath.Dir(path)
	if err := os.Chmod(folder, 0o775); err != nil { // the mode that the list will show
		t.Fatal(err)
	}
	before, err := Identify(path)
	if err != nil {
		t.Fatal(err)
	}
	list := binary.LittleEndian.AppendUint32(nil, 2) // the version
	for _, e := range []struct {
		tag, rights uint16
		id          uint32
	}{
		{0x01, 7, anybody}, // owner
		{0x02, 7, 65534},   // that user
		{0x04, 5, anybody}, // group
		{0x10, 7, anybody}, // mask
		{0x20, 5, anybody}, // others
	} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.rights)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	if err := unix.Setxattr(path, "system.posix_acl_access", list, 0); errors.Is(err, unix.ENOTSUP) {
		t.Skip("no access control lists on this file system")
	} else if err != nil {
		t.Fatal(err)
	}
	without, err := Identify(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(folder, "system.posix_acl_access", list, 0); err != nil {
		t.Fatal(err)
	}
	if now, err := Identify(path); err != nil || now == without || without == before {
		t.Errorf("identity %+v, then %+v with a list of the file, then %+v (%v) with a list of the folder", before, without, now, err)
	}
	steps, err := walk(path)
	if err != nil {
		t.Fatal(err)
	}
	file := steps[len(steps)-1]
	alone := user{file.stat.Uid, file.stat.Uid} // with a group of its own
	file.stat.Gid = file.stat.Uid
	if err := onlyOurs([]step{file}, alone, orElse); err == nil || !strings.Contains(err.Error(), "chmod g-w") {
		t.Errorf("a file that another user may write: %v", err)
	}
	if err := os.Chmod(path, 0o755); err != nil { // as it says
		t.Fatal(err)
	}
	if steps, err = walk(path); err != nil {
		t.Fatal(err)
	}
	if err := onlyOurs(steps[len(steps)-1:], alone, orElse); err != nil {
		t.Errorf("after that: %v", err)
	}
}
