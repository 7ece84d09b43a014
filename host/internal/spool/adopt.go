package spool

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/syndtr/goleveldb/leveldb/journal"

	"github.com/servetrace/servetrace/host/internal/slowdisk"
)

// Found is a batch of a process that has ended. For each exporter that has not settled
// all spans, Settled has the number of spans that it has settled, which are the first
// spans of the batch.
type Found struct {
	Batch
	Records []*Record
	Settled map[string]int
}

// Adopt takes over the segments of processes that have ended, and returns their batches,
// ordered by time. It stops at the bound of the Store. If the oldest segment alone is
// larger than the bound, Adopt takes over this segment and no other. It blocks until it has
// read the segments, or until ctx ends. It is called once.
func (s *Store) Adopt(ctx context.Context) ([]Found, error) {
	return slowdisk.Aside(ctx, func() ([]Found, error) { return s.adopt(ctx) })
}

func (s *Store) adopt(ctx context.Context) ([]Found, error) {
	paths, err := foreign(s.dir, s.instance)
	all := &contents{}
	for i, path := range paths {
		if ctx.Err() != nil {
			break
		}
		if info, err := os.Stat(path); err == nil && s.Stats().Bytes+info.Size() > s.limit && (info.Size() <= s.limit || len(all.segments) > 0) {
			s.notes.Note(slog.LevelWarn, "the spool has more than its bound: some files are left for the next process that starts", "files", len(paths)-i)
			break
		}
		if err := s.adoptFile(path, all); err != nil {
			s.notes.Note(slog.LevelWarn, "a file of the spool cannot be read", "file", path, "error", err)
		}
	}
	return s.register(all), err
}

// register counts, for each record, the exporters that need it. It frees the segments
// that no exporter needs.
func (s *Store) register(all *contents) []Found {
	list := all.merge()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range list {
		for _, rec := range f.Records {
			rec.needs = len(f.Settled)
			if rec.needs > 0 {
				rec.seg.live++
			}
		}
	}
	for _, seg := range all.segments {
		seg.open = false
		s.freeLocked(seg)
	}
	return slices.DeleteFunc(list, func(f Found) bool { return len(f.Settled) == 0 })
}

// foreign returns the paths of the segments of other processes, the oldest first.
func foreign(dir, instance string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	times := map[string]int64{}
	var paths []string
	for _, e := range entries {
		info, infoErr := e.Info()
		if infoErr != nil || !info.Mode().IsRegular() || instanceOf(e.Name()) == "" || instanceOf(e.Name()) == instance {
			continue
		}
		path := filepath.Join(dir, e.Name())
		paths = append(paths, path)
		times[path] = info.ModTime().UnixNano()
	}
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(times[a], times[b]) })
	return paths, err
}

// instanceOf returns the id of the process in the file name of a segment, or "" if name
// is not such a name.
func instanceOf(name string) string {
	base, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return ""
	}
	instance, _, _ := strings.Cut(base, "-")
	return instance
}

// adoptFile locks a segment and adds its records to all. It does nothing if a running
// process has the segment.
func (s *Store) adoptFile(path string, all *contents) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	seg := &segment{path: path, file: f}
	if err := seg.lock(); errors.Is(err, errLocked) {
		return f.Close()
	} else if err != nil {
		return errors.Join(err, f.Close())
	}
	damaged := all.damaged
	if err := all.read(seg); err != nil {
		return errors.Join(err, f.Close())
	}
	if n := all.damaged - damaged; n > 0 {
		s.notes.Note(slog.LevelWarn, "a file of the spool has bytes that cannot be read; a process that is killed while it writes leaves some at the end",
			"file", path, "bytes", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.open = true // so that the segment is not freed before register has counted its records
	s.segments[seg] = struct{}{}
	s.bytes += seg.size
	if seg.size > s.limit {
		s.large = seg
	}
	return nil
}

// contents has the records of all adopted segments.
type contents struct {
	segments []*segment
	parts    []Found // batches, or parts of batches, without Settled
	marks    []mark  // notes about settled spans; their field seg is set
	damaged  int64
}

// counter counts the bytes that a journal.Reader has read, to find the block of a
// record. The reader reads whole blocks.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// Drop counts the bytes that a journal.Reader has skipped. It does not count the zeros
// that segment.resume writes.
func (c *contents) Drop(err error) {
	if e, ok := errors.AsType[*journal.ErrCorrupted](err); ok && e.Reason != "zero header" && e.Reason != "orphan chunk" {
		c.damaged += int64(e.Size)
	}
}

// read adds the records of a segment. It skips damaged records.
func (c *contents) read(seg *segment) error {
	info, err := seg.file.Stat()
	if err != nil {
		return err
	}
	seg.end, seg.size = info.Size(), info.Size()
	in := &counter{Reader: io.NewSectionReader(seg.file, 0, info.Size())}
	log := journal.NewReader(in, c, false, true)
	var record bytes.Buffer
	for {
		one, err := log.Next()
		if errors.Is(err, io.EOF) {
			c.segments = append(c.segments, seg)
			return nil
		}
		if err != nil {
			return err
		}
		rec := &Record{seg: seg, block: (in.n - 1) / blockBytes * blockBytes}
		record.Reset()
		if _, err := record.ReadFrom(one); err != nil || record.Len() == 0 {
			continue // the record has no end, which Drop has counted, or it is the empty record of segment.resume
		}
		rec.size, rec.sum = int64(record.Len()), crc32.Checksum(record.Bytes(), castagnoli)
		if !c.parse(record.Bytes(), rec) {
			c.damaged += rec.size
		}
	}
}

func (c *contents) parse(record []byte, rec *Record) (ok bool) {
	switch record[0] {
	case kindBatch:
		b, _, err := parseBatch(record[1:])
		if err != nil {
			return false
		}
		b.Instance = instanceOf(filepath.Base(rec.seg.path))
		c.parts = append(c.parts, Found{Batch: b, Records: []*Record{rec}})
	case kindMarks:
		list, err := parseMarks(record[1:])
		for _, m := range list {
			m.seg = rec.seg
			c.marks = append(c.marks, m)
		}
		return err == nil
	default:
		return false
	}
	return true
}

// key identifies a batch in a map.
type key struct {
	instance string
	number   uint64
}

// merge joins the parts of each batch, sets Settled from the marks, and sorts the
// batches by time.
func (c *contents) merge() (list []Found) {
	at := map[key]int{}
	for _, part := range c.parts {
		k := key{part.Instance, part.Number}
		i, known := at[k]
		if !known {
			at[k] = len(list)
			list = append(list, part)
			continue
		}
		f := &list[i]
		f.Records = append(f.Records, part.Records...)
		f.Spans += part.Spans
		if part.Sealed.Before(f.Sealed) {
			f.Sealed = part.Sealed
		}
	}
	marks := make([][]mark, len(list))
	for _, m := range c.marks {
		if i, known := at[key{instanceOf(filepath.Base(m.seg.path)), m.Number}]; known {
			marks[i] = append(marks[i], m)
		}
	}
	for i := range list {
		list[i].settle(marks[i])
	}
	slices.SortStableFunc(list, func(a, b Found) int {
		return cmp.Or(a.Sealed.Compare(b.Sealed), cmp.Compare(a.Number, b.Number))
	})
	return list
}

// settle sets Settled from the marks of the batch, which are in any order. A settled
// span counts only if all spans before it are settled.
func (f *Found) settle(marks []mark) {
	slices.SortFunc(marks, func(a, b mark) int { return cmp.Compare(a.From, b.From) })
	f.Settled = map[string]int{}
	for _, name := range f.Exporters {
		done := 0
		for _, m := range marks {
			if m.Exporter == name && m.From <= done {
				done = max(done, m.From+m.Spans)
			}
		}
		if done < f.Spans {
			f.Settled[name] = done
		}
	}
}
