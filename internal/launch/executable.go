package launch

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
)

// machineName returns the processor architecture of an executable: as a value of GOARCH if Go
// supports it, otherwise as package elf names it.
func machineName(file *elf.File) string {
	name := map[elf.Machine]string{
		elf.EM_X86_64: "amd64", elf.EM_386: "386", elf.EM_AARCH64: "arm64", elf.EM_ARM: "arm",
		elf.EM_S390: "s390x", elf.EM_RISCV: "riscv64", elf.EM_PPC64: "ppc64", elf.EM_LOONGARCH: "loong64", elf.EM_MIPS: "mips",
	}[file.Machine]
	if file.Machine == elf.EM_PPC64 && file.ByteOrder == binary.LittleEndian {
		name += "le"
	}
	return cmp.Or(name, file.Machine.String())
}

// scriptMark is the beginning of a script. The path of the interpreter follows it.
const scriptMark = "#!"

// beginsWith reports whether a file begins with mark.
func beginsWith(f io.ReaderAt, mark string) bool {
	head := make([]byte, len(mark))
	n, _ := f.ReadAt(head, 0)
	return string(head[:n]) == mark
}

// badFormat explains why the kernel cannot run the executable at path.
func badFormat(path string) string {
	here := runtime.GOOS + "/" + runtime.GOARCH
	f, err := os.Open(path)
	if err != nil {
		return "not a program for " + here
	}
	defer func() { _ = f.Close() }() // an error has no effect: the file was only read
	file, err := elf.NewFile(f)
	if err == nil {
		return fmt.Sprintf("it is built for %s, this machine is %s; build it with GOARCH=%s", machineName(file), here, runtime.GOARCH)
	}
	if beginsWith(f, scriptMark) {
		return "its first line names no usable interpreter"
	}
	return fmt.Sprintf("it is not a program for %s: neither an ELF file nor a script with a first line like #!/usr/bin/python3", here)
}

// Foreign returns the reason for which an executable is not for this machine. It does not
// run the executable. It returns "" for a script, for a program of this machine, and if it
// cannot decide.
func Foreign(path string) string {
	f, err := os.Open(path)
	if err != nil || runtime.GOOS != "linux" {
		return ""
	}
	defer func() { _ = f.Close() }() // an error has no effect: the file was only read
	if beginsWith(f, scriptMark) {
		return ""
	}
	if file, err := elf.NewFile(f); err == nil && machineName(file) == runtime.GOARCH {
		return ""
	}
	return badFormat(path)
}
