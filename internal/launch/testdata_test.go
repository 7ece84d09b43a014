package launch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"strings"
)

// foreignELF is the head of a program for a machine that these tests do not
// run on.
func foreignELF() string {
	var buf bytes.Buffer
	head := elf.Header64{
		Ident:   [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_EXEC),
		Machine: uint16(elf.EM_S390),
		Version: uint32(elf.EV_CURRENT),
		Ehsize:  64,
	}
	if err := binary.Write(&buf, binary.LittleEndian, head); err != nil {
		return err.Error()
	}
	return buf.String()
}

// normal removes the parts of an error that differ between runs and machines.
func normal(text, path string) string {
	return strings.NewReplacer(
		path, "PATH",
		runtime.GOOS+"/"+runtime.GOARCH, "OS/ARCH",
		"GOARCH="+runtime.GOARCH, "GOARCH=ARCH",
	).Replace(text)
}
