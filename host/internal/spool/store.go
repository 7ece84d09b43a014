// Package spool stores batches of spans in files, so that they survive the end of the
// process.
//
//  1. New returns a Store and opens no file. Append adds a batch to the open segment,
//     and begins a new segment when the open segment is long enough.
//  2. Settle notes that an exporter is done with spans of a batch. Work writes these notes
//     into the segments, and removes the segments that no exporter needs.
//  3. Adopt takes over the segments of processes that have ended, and returns their
//     batches that are not settled. Read returns the bytes of a batch.
//  4. Close gives up the segments, so that the next process can adopt them.
//
// A segment is a file in LevelDB's log format, written by package journal of goleveldb:
// blocks of 32 KiB with chunks that have checksums. A reader skips a damaged block or an
// incomplete end, and continues with the next block. Each process locks its segments
// (flock), so that several processes share a folder, and the kernel releases the locks
// of a process that is killed.
//
// The package does not call fsync: the files survive a crash of the process, but may not
// survive a crash of the machine. It does not decide which batch is given up at the
// bound. Open this file first, then segment.go, record.go and adopt.go.
package spool

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/servetrace/servetrace/host/internal/failures"
	"github.com/servetrace/servetrace/host/internal/slowdisk"
)

// Batch is the description of a batch in the spool.
type Batch struct {
	// Instance and Number are the id of the batch. Append uses the instance of the
	// Store. If a batch is stored in several parts, all parts have the same number.
	Instance string    `json:"-"`
	Number   uint64    `json:"number"`
	Spans    int       `json:"spans"`
	Sealed   time.Time `json:"sealed"`
	// Exporters are the names of the exporters that must get the batch.
	Exporters []string `json:"exporters"`
}

// Record is the place of a batch, or of a part of a batch, in a segment.
type Record struct {
	seg   *segment
	block int64  // offset in the file of the block in which the record begins
	sum   uint32 // checksum of the record, which distinguishes it from other records of the block
	size  int64
	needs int // number of exporters that have not settled it; guarded by Store.mu
}

// Size returns the bytes of the record in the file.
func (r *Record) Size() int64 { return r.size }

// These bound the segments and the writes. A full store has about segmentCount
// segments.
const (
	segmentCount  = 32
	mostSegment   = 32 << 20
	patience      = time.Second // longest time that a caller waits for one write
	lookInterval  = time.Second // interval of checks whether an operator has removed the open file
	retryInterval = time.Second // interval of attempts to write to a disk that fails
)

// Store keeps batches in the segments (files) of a folder. It is safe for concurrent
// use, except that Append must not be called concurrently with itself.
type Store struct {
	dir, instance string
	limit         int64
	notes         *failures.Log
	disk          slowdisk.Disk // one write at a time
	open          writer        // used only inside writeAlone

	mu       sync.Mutex
	segments map[*segment]struct{}
	bytes    int64 // size of all segments
	// large is an adopted segment that is larger than the bound, because an operator has
	// lowered the bound. Nil if there is none.
	large  *segment
	marks  []mark
	doomed []*segment // to be removed
	health health
	closed bool
}

// writer is the state of the open segment, to which batches are appended.
type writer struct {
	seg    *segment // nil if the next Append must begin a segment
	count  int      // number of the last segment
	looked time.Time
}

// health is the state of the disk, as the last writes have shown it.
type health struct {
	failing bool
	silent  bool // the last write did not end in time
	tried   time.Time
	missed  uint64
	cause   error
}

// New returns a Store for a folder, with a bound in bytes. instance names the process.
func New(dir, instance string, limit int64, log *slog.Logger) *Store {
	return &Store{
		dir: dir, instance: instance, limit: limit, notes: failures.New(log), disk: slowdisk.New(),
		segments: map[*segment]struct{}{},
	}
}

// Append stores a batch, or a part of a batch. It returns nil if that is not possible.
// The failure is counted, and logged by Work. Append blocks for as long as the disk
// takes, at most for a second.
func (s *Store) Append(b Batch, data []byte) *Record {
	if !s.mayWrite() {
		return nil
	}
	payload, err := batchRecord(b, data)
	var rec *Record
	if err == nil {
		rec, err = writeAlone(s, func() (*Record, error) { return s.write(payload) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.record(err, s.dir, s.notes)
	if err != nil {
		return nil
	}
	rec.needs = len(b.Exporters)
	rec.seg.live++
	return rec
}

// mayWrite reports whether a write may be tried now. If not, it counts a missed write.
func (s *Store) mayWrite() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.closed || !s.health.writable(now, s.disk) {
		s.health.missed++
		return false
	}
	s.health.tried = now
	return true
}

// Miss counts a batch that the caller does not store, because Writable returned false.
func (s *Store) Miss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.missed++
}

// Writable reports whether Append would try to write now. A disk that fails or does not
// answer is tried again after a while.
func (s *Store) Writable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && s.health.writable(time.Now(), s.disk)
}

func (h *health) writable(now time.Time, disk slowdisk.Disk) bool {
	return !h.failing || now.Sub(h.tried) >= retryInterval && (!h.silent || !disk.Busy())
}

// record records the result of a write, and notes a change for the log.
func (h *health) record(err error, dir string, notes *failures.Log) {
	if err != nil {
		h.missed++
		h.cause = err
	}
	h.silent = errors.Is(err, slowdisk.ErrSilent)
	switch {
	case err != nil && !h.failing:
		notes.Note(slog.LevelError, "the spool cannot be written: spans wait in memory only, and would be lost with the process",
			"dir", dir, "error", err)
	case err == nil && h.failing:
		notes.Note(slog.LevelInfo, "the spool can be written again", "dir", dir, "missed", h.missed)
	}
	h.failing = err != nil
}

// writeAlone calls do when no other write to the files runs. It waits for the result,
// at most for patience.
func writeAlone[T any](s *Store, do func() (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return slowdisk.Look(ctx, s.disk, do)
}

// write appends a record to the open segment. It is called inside writeAlone.
func (s *Store) write(payload []byte) (*Record, error) {
	if seg := s.open.seg; seg != nil && time.Since(s.open.looked) >= lookInterval {
		s.open.looked = time.Now()
		if !seg.present() {
			s.finishOpen() // an operator has removed it, but its batches can be read while it is open
		}
	}
	if seg := s.open.seg; seg != nil && seg.end >= min(s.limit/segmentCount, mostSegment) {
		s.finishOpen()
	}
	if s.open.seg == nil {
		if err := s.begin(); err != nil {
			return nil, err
		}
	}
	seg := s.open.seg
	rec, err := seg.append(payload, s.grow)
	if err != nil {
		s.finishOpen()
	}
	return rec, err
}

// grow counts n bytes that were written to a segment.
func (s *Store) grow(seg *segment, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.size += n
	if _, owned := s.segments[seg]; owned {
		s.bytes += n
	}
}

// begin makes a new segment, to which further batches are appended.
func (s *Store) begin() error {
	seg, err := createSegment(s.dir, s.instance, &s.open.count)
	if err != nil {
		return err
	}
	s.open.seg, s.open.looked = seg, time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.open = true
	s.segments[seg] = struct{}{}
	return nil
}

// finishOpen closes the open segment for further batches. Notes of Settle may still be
// appended.
func (s *Store) finishOpen() {
	seg := s.open.seg
	s.open.seg = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	seg.open = false
	s.freeLocked(seg)
}

// Settle notes that an exporter has settled some spans of a batch: they were delivered,
// rejected, filtered or dropped. from is the index of the first of these spans. last is
// true if the exporter has settled the whole batch.
func (s *Store) Settle(records []*Record, number uint64, exporter string, from, spans int, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var marked *segment
	for _, rec := range records {
		if rec.seg != marked {
			marked = rec.seg
			s.marks = append(s.marks, mark{seg: rec.seg, Exporter: exporter, Number: number, From: from, Spans: spans})
		}
		if !last {
			continue
		}
		if rec.needs--; rec.needs == 0 {
			rec.seg.live--
			s.freeLocked(rec.seg)
		}
	}
}

// freeLocked plans to remove a segment if no exporter needs it and no batch is appended
// to it any more.
func (s *Store) freeLocked(seg *segment) {
	if _, owned := s.segments[seg]; !owned || seg.open || seg.live > 0 {
		return
	}
	if seg == s.large {
		s.large = nil
	}
	delete(s.segments, seg)
	s.bytes -= seg.size
	s.doomed = append(s.doomed, seg)
}

// Over reports whether the segments have more bytes than the bound. It does not count
// an adopted segment that is larger than the bound. Otherwise all batches of that
// segment would be dropped.
func (s *Store) Over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	counted := s.bytes
	if s.large != nil {
		counted -= s.large.size
	}
	return counted > s.limit
}

// Work writes the notes of Settle to the segments, removes segments that no exporter
// needs, and writes the pending log lines. The caller must hold no mutex. It blocks for
// as long as the disk takes, at most for a second.
func (s *Store) Work() {
	defer s.notes.Write()
	s.mu.Lock()
	marks, doomed := s.marks, s.doomed
	stuck := s.health.silent && s.disk.Busy()
	if stuck { // the notes are lost, so the next process sends some batches again
		s.marks = nil
	}
	if len(marks) == 0 && len(doomed) == 0 || stuck {
		s.mu.Unlock()
		return
	}
	s.marks, s.doomed = nil, nil
	s.mu.Unlock()
	_, err := writeAlone(s, func() (struct{}, error) { return struct{}{}, s.tidy(marks, doomed) })
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.health.record(err, s.dir, s.notes)
	}
}

// tidy removes segments and writes marks. It is called inside writeAlone.
func (s *Store) tidy(marks []mark, doomed []*segment) error {
	var errs []error
	for _, seg := range doomed {
		errs = append(errs, seg.remove())
	}
	bySegment := map[*segment][]mark{}
	for _, m := range marks {
		bySegment[m.seg] = append(bySegment[m.seg], m)
	}
	for seg, list := range bySegment {
		if seg.gone {
			continue
		}
		payload, err := marksRecord(list)
		if err == nil {
			_, err = seg.append(payload, s.grow)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Read returns the bytes of a batch, which are the data of its records in order. It blocks
// until the disk has answered, or until ctx ends.
func (s *Store) Read(ctx context.Context, records []*Record) ([]byte, error) {
	return slowdisk.Aside(ctx, func() (data []byte, err error) {
		for _, rec := range records {
			part, err := rec.seg.read(rec)
			if err != nil {
				return nil, err
			}
			if data == nil {
				data = part
			} else {
				data = append(data, part...)
			}
		}
		return data, nil
	})
}

// Stats describes a Store.
type Stats struct {
	Bytes, LimitBytes int64
	// Missed counts the batches, or requests, that could not be stored. Failing is true
	// if the last attempt failed, and Cause is the last error.
	Missed  uint64
	Failing bool
	Cause   error
}

// Stats returns the state of the store.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.health
	return Stats{Bytes: s.bytes, LimitBytes: s.limit, Missed: h.missed, Failing: h.failing, Cause: h.cause}
}

// Close closes the segments and removes the segments that no exporter needs. Later batches
// are not stored.
func (s *Store) Close() {
	s.Work()
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_, _ = writeAlone(s, func() (struct{}, error) { // if this times out, the files stay open until the process ends
		if s.open.seg != nil {
			s.finishOpen()
		}
		s.mu.Lock()
		doomed, kept := s.doomed, s.segments
		s.doomed, s.segments = nil, map[*segment]struct{}{}
		s.mu.Unlock()
		err := s.tidy(nil, doomed)
		for seg := range kept {
			err = errors.Join(err, seg.close())
		}
		return struct{}{}, err
	})
}
