package spool

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/syndtr/goleveldb/leveldb/journal"
)

// These are constants of LevelDB's log format.
const (
	blockBytes  = 32 << 10
	chunkHeader = 7
)

// suffix is the end of the file name of a segment. The name begins with the instance, a
// dash and a number.
const suffix = ".spool2"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// segment is a file of the spool that this process has locked.
type segment struct {
	path string
	file *os.File

	// Store.mu guards size, live and open. live is the number of records that some
	// exporter needs. open is true while batches are appended.
	size int64
	live int
	open bool

	// The fields below are used only inside writeAlone. end is the offset at which the
	// next bytes are written. log is nil until the first write.
	end  int64
	log  *journal.Writer
	out  bytes.Buffer
	gone bool
}

// createSegment makes a file with the next free number. count is the number of the last
// file, which createSegment raises.
func createSegment(dir, instance string, count *int) (*segment, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	for range 10 {
		*count++
		path := filepath.Join(dir, fmt.Sprintf("%s-%08d%s", instance, *count, suffix))
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("spool: %w", err)
		}
		seg := &segment{path: path, file: f}
		err = seg.lock()
		if err == nil {
			return seg, nil
		}
		if !errors.Is(err, errLocked) {
			return nil, errors.Join(err, seg.remove())
		}
		_ = f.Close() // another process has locked the empty file first, and removes it
	}
	return nil, fmt.Errorf("spool: %s: %w", dir, errLocked)
}

var errLocked = errors.New("the file belongs to another process")

// lock locks the file for this process. The kernel releases the lock at the end of the
// process. The error is errLocked if another process has the file, or has removed it.
func (g *segment) lock() error {
	err := syscall.Flock(int(g.file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || err == nil && !g.present() {
		return errLocked
	}
	if err != nil {
		return fmt.Errorf("spool: lock %s: %w", g.path, err)
	}
	return nil
}

// present reports whether the file is still in its folder under its name.
func (g *segment) present() bool {
	named, err := os.Stat(g.path)
	if err != nil {
		return false
	}
	opened, err := g.file.Stat()
	return err == nil && os.SameFile(named, opened)
}

// append writes a record at the end of the file. It calls grow with the number of bytes
// that were added. After an error, the file is unchanged, or ends with a part of a
// record, which a reader skips.
func (g *segment) append(record []byte, grow func(*segment, int64)) (*Record, error) {
	if g.log == nil {
		if err := g.resume(); err != nil {
			return nil, err
		}
	}
	begin := g.end + int64(g.out.Len())
	if blockBytes-begin%blockBytes < chunkHeader {
		begin += blockBytes
	}
	rec := &Record{seg: g, block: begin / blockBytes * blockBytes, sum: crc32.Checksum(record, castagnoli)}
	if err := g.encode(record); err != nil {
		return nil, err
	}
	n, err := g.file.WriteAt(g.out.Bytes(), g.end)
	rec.size = int64(n)
	g.out.Reset()
	if err != nil {
		g.log = nil // resume begins a new block for the next record
		if g.file.Truncate(g.end) == nil {
			n = 0
		}
	}
	g.end += int64(n)
	grow(g, int64(n))
	if err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	return rec, nil
}

// resume begins a log at the next block. If the file ends with an incomplete record, a
// reader would take the next chunk for a part of that record. Therefore resume first writes
// an empty record.
func (g *segment) resume() error {
	g.out.Reset()
	g.log = journal.NewWriter(&g.out)
	if g.end == 0 {
		return nil
	}
	g.end = (g.end + blockBytes - 1) / blockBytes * blockBytes
	return g.encode(nil)
}

func (g *segment) encode(record []byte) error {
	w, err := g.log.Next()
	if err != nil {
		return err
	}
	if _, err := w.Write(record); err != nil {
		return err
	}
	return g.log.Flush()
}

// read returns the data of a record.
func (g *segment) read(rec *Record) ([]byte, error) {
	log := journal.NewReader(io.NewSectionReader(g.file, rec.block, math.MaxInt64-rec.block), nil, false, true)
	record := bytes.NewBuffer(make([]byte, 0, rec.size))
	for {
		one, err := log.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("spool: %s: offset %d: %w", g.path, rec.block, errRecord)
		}
		if err != nil {
			return nil, fmt.Errorf("spool: %w", err)
		}
		record.Reset()
		if _, err := record.ReadFrom(one); err != nil || crc32.Checksum(record.Bytes(), castagnoli) != rec.sum {
			continue // it is another record of the block, or it is damaged
		}
		if record.Len() == 0 {
			return nil, errRecord
		}
		_, data, err := parseBatch(record.Bytes()[1:])
		return data, err
	}
}

// remove deletes the file and releases the lock.
func (g *segment) remove() error {
	g.gone = true
	err := os.Remove(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, g.close())
}

// close closes the file, which releases its lock.
func (g *segment) close() error {
	g.gone = true
	return g.file.Close()
}
