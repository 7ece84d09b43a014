package spool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const limit = 1 << 20

// process is a Store in the place of a process that a test can kill.
type process struct {
	*Store
	t   *testing.T
	log *bytes.Buffer
}

func start(t *testing.T, dir, instance string) *process {
	t.Helper()
	log := &bytes.Buffer{}
	p := &process{New(dir, instance, limit, slog.New(slog.NewTextHandler(log, nil))), t, log}
	t.Cleanup(p.kill)
	return p
}

// kill releases the locks and leaves the files as they are.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for seg := range p.segments {
		_ = seg.file.Close() // closed twice by the end of the test
	}
}

// put stores a batch for the exporters a and b.
func (p *process) put(number uint64, data string) *Record {
	p.t.Helper()
	rec := p.Append(batchOf(number), []byte(data))
	if rec == nil {
		p.t.Fatalf("batch %d is not stored: %v", number, p.Stats().Cause)
	}
	return rec
}

func batchOf(number uint64) Batch {
	return Batch{Number: number, Spans: 3, Sealed: time.Unix(int64(number), 0), Exporters: []string{"a", "b"}}
}

// adopted returns "instance-number:data" and the exporters, for each batch that is found.
func (p *process) adopted() (list []string) {
	p.t.Helper()
	found, err := p.Adopt(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range found {
		data, err := p.Read(p.t.Context(), f.Records)
		if err != nil {
			p.t.Fatal(err)
		}
		list = append(list, fmt.Sprintf("%s-%d:%s %v", f.Instance, f.Number, data, f.Settled))
	}
	return list
}

// files returns the number of files in a folder.
func files(t *testing.T, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func wantAdopted(t *testing.T, p *process, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, p.adopted()); diff != "" {
		t.Errorf("batches that were found (-want +got):\n%s\nlog:\n%s", diff, p.log)
	}
}

func TestNextProcessGetsTheRestOfEachExporter(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, "one")
	one, two := first.put(1, "first"), first.put(2, "second")
	first.put(3, "third")
	first.Settle([]*Record{one}, 1, "a", 0, 3, true)
	first.Settle([]*Record{one}, 1, "b", 0, 3, true)
	first.Settle([]*Record{two}, 2, "a", 0, 3, true)
	first.Settle([]*Record{two}, 2, "b", 0, 1, false)
	first.Work()
	first.kill()

	second := start(t, dir, "two")
	wantAdopted(t, second, "one-2:second map[b:1]", "one-3:third map[a:0 b:0]")
	second.put(1, "fourth")
	second.kill()

	third := start(t, dir, "three")
	wantAdopted(t, third, "two-1:fourth map[a:0 b:0]", "one-2:second map[b:1]", "one-3:third map[a:0 b:0]")
}

// The requests of one batch are stored one by one, and a mark counts its spans.
func TestRequestsOfOneBatch(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, "one")
	list := []*Record{first.put(7, "re"), first.put(7, "quest")}
	first.Settle(list, 7, "a", 0, 4, false)
	first.Work()
	if data, err := first.Read(t.Context(), list); err != nil || string(data) != "request" {
		t.Errorf("read %q, %v", data, err)
	}
	first.kill()
	second := start(t, dir, "two")
	found, err := second.Adopt(t.Context())
	if err != nil || len(found) != 1 || found[0].Spans != 6 {
		t.Fatalf("found %+v, %v", found, err)
	}
	if diff := cmp.Diff(map[string]int{"a": 4, "b": 0}, found[0].Settled); diff != "" {
		t.Error(diff)
	}
}

// Several processes share a folder, and none takes the segments of another that runs.
func TestProcessesShareAFolder(t *testing.T) {
	dir := t.TempDir()
	first, second := start(t, dir, "one"), start(t, dir, "two")
	first.put(1, "first")
	second.put(1, "second")
	wantAdopted(t, start(t, dir, "three"))
	first.kill()
	fourth := start(t, dir, "four")
	wantAdopted(t, fourth, "one-1:first map[a:0 b:0]")
	wantAdopted(t, start(t, dir, "five"))
}

// The segments that no exporter needs are removed, in any order, and large batches are
// read back whole.
func TestSegmentsAreRemoved(t *testing.T) {
	dir := t.TempDir()
	p := start(t, dir, "one")
	const size = 10_000
	var list []*Record
	for i := range uint64(60) {
		list = append(list, p.put(i, strings.Repeat(string(rune('a'+i%26)), size)))
	}
	if got := p.Stats().Bytes; got < 60*size || got > 61*size {
		t.Errorf("%d bytes for 60 batches of %d", got, size)
	}
	before := files(t, dir)
	if before < 10 {
		t.Fatalf("%d segments", before)
	}
	for i, rec := range list {
		data, err := p.Read(t.Context(), []*Record{rec})
		if err != nil || string(data) != strings.Repeat(string(rune('a'+i%26)), size) {
			t.Fatalf("batch %d: %d bytes, %v", i, len(data), err)
		}
	}
	for _, i := range rand.Perm(60)[:59] {
		p.Settle(list[i:i+1], uint64(i), "a", 0, 3, true)
		p.Settle(list[i:i+1], uint64(i), "b", 0, 3, true)
	}
	p.Work()
	if left := files(t, dir); left > 2 { // the open one, and one that has a batch
		t.Errorf("%d of %d segments are left", left, before)
	}
	for i := range list {
		p.Settle(list[i:i+1], uint64(i), "a", 0, 3, true)
		p.Settle(list[i:i+1], uint64(i), "b", 0, 3, true)
	}
	p.Close()
	if left := files(t, dir); left != 0 {
		t.Errorf("%d segments are left", left)
	}
}

// A folder that cannot be written is logged once and tried again.
func TestFolderThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, "one")
	for range 3 {
		if p.Append(batchOf(1), []byte("x")) != nil {
			t.Fatal("stored in a folder that is a file")
		}
		p.Work()
		p.again()
	}
	if s := p.Stats(); s.Missed != 3 || !s.Failing || s.Cause == nil {
		t.Errorf("%+v, want 3 misses", s)
	}
	p.notes.Write()
	if n := strings.Count(p.log.String(), "the spool cannot be written"); n != 1 {
		t.Errorf("%d lines about the failure:\n%s", n, p.log)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	p.put(2, "y")
	p.notes.Write()
	if s := p.Stats(); s.Failing || !strings.Contains(p.log.String(), "the spool can be written again") {
		t.Errorf("%+v\n%s", s, p.log)
	}
}

// again lets the next write be tried at once, and the open segment be looked for.
func (p *process) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.health.tried, p.open.looked = time.Time{}, time.Time{}
}

// The batches of a folder that has vanished are still read, and new ones are safe.
func TestFolderThatVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	p := start(t, dir, "one")
	rec := p.put(1, "first")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	p.again()
	p.put(2, "second")
	if data, err := p.Read(t.Context(), []*Record{rec}); err != nil || string(data) != "first" {
		t.Errorf("read %q, %v", data, err)
	}
	p.kill()
	wantAdopted(t, start(t, dir, "two"), "one-2:second map[a:0 b:0]")
}

// A file that is cut at any place loses the batches behind the cut only, and takes marks
// that the next process reads.
func TestCutFile(t *testing.T) {
	dir := t.TempDir()
	first := start(t, dir, "one")
	const batches, size = 4, 20_000 // over block borders
	for i := range uint64(batches) {
		first.put(i+1, strings.Repeat("x", size))
	}
	first.kill()
	path := filepath.Join(dir, "one-00000001"+suffix)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut += 1 + rand.IntN(600) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(path)), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		second := start(t, dir, "two")
		found, err := second.Adopt(t.Context())
		if want := min(batches, cut/(size+100)); err != nil || len(found) < want {
			t.Fatalf("cut at %d: %d batches, %v, want %d", cut, len(found), err, want)
		}
		for _, f := range found {
			second.Settle(f.Records, f.Number, "a", 0, 3, true)
		}
		second.Work()
		second.kill()
		third := start(t, dir, "three")
		again, err := third.Adopt(t.Context())
		if err != nil || len(again) != len(found) {
			t.Fatalf("cut at %d: %d batches, then %d, %v", cut, len(found), len(again), err)
		}
		for _, f := range again {
			if diff := cmp.Diff(map[string]int{"b": 0}, f.Settled); diff != "" {
				t.Fatalf("cut at %d: %s", cut, diff)
			}
			if data, err := third.Read(t.Context(), f.Records); err != nil || len(data) != size {
				t.Fatalf("cut at %d: read %d bytes, %v", cut, len(data), err)
			}
		}
		third.kill()
	}
}

// A disk that does not answer delays one write and no more.
func TestDiskThatDoesNotAnswer(t *testing.T) {
	p := start(t, t.TempDir(), "one")
	held := make(chan struct{})
	entered := make(chan struct{})
	go func() {
		_, _ = writeAlone(p.Store, func() (struct{}, error) { close(entered); <-held; return struct{}{}, nil })
	}()
	<-entered
	if p.Append(batchOf(1), []byte("x")) != nil {
		t.Fatal("stored on a disk that does not answer")
	}
	p.again()
	begun := time.Now()
	for range 1000 {
		if p.Append(batchOf(1), []byte("x")) != nil {
			t.Fatal("stored on a disk that does not answer")
		}
		p.Work()
	}
	if took := time.Since(begun); took > patience/2 {
		t.Errorf("1,000 further writes waited %v", took)
	}
	close(held)
	for p.disk.Busy() {
		p.Work()
	}
	p.again()
	p.put(2, "y")
}

func TestReadEndsWithItsContext(t *testing.T) {
	p := start(t, t.TempDir(), "one")
	rec := p.put(1, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Read(ctx, []*Record{rec}); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// FuzzAdopt changes the file of a process that was killed: a start works, and never
// returns a batch with other bytes.
func FuzzAdopt(f *testing.F) {
	f.Add(uint32(0), uint32(0), byte(0), []byte(nil))
	f.Add(uint32(100), uint32(50_000), byte(1), []byte("garbage"))
	f.Add(uint32(32768), uint32(40_000), byte(0x80), bytes.Repeat([]byte{0}, 40_000))
	f.Fuzz(func(t *testing.T, at, cut uint32, flip byte, tail []byte) {
		dir := t.TempDir()
		first := start(t, dir, "one")
		for i := range uint64(3) {
			rec := first.put(i, strings.Repeat(string(rune('x'+i)), 15_000))
			first.Settle([]*Record{rec}, i, "a", 0, 1, false)
			first.Work()
		}
		first.kill()
		path := filepath.Join(dir, "one-00000001"+suffix)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[int(at)%len(data)] ^= flip
		if int(cut) < len(data) && cut > 0 {
			data = data[:cut]
		}
		data = append(data, tail...)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "other-1"+suffix), tail, 0o600); err != nil {
			t.Fatal(err)
		}
		second := start(t, dir, "two")
		found, err := second.Adopt(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Instance != "one" {
				continue // the fuzzer may write a batch
			}
			data, err := second.Read(t.Context(), f.Records)
			if want := strings.Repeat(string(rune('x'+f.Number)), 15_000); len(tail) == 0 && (err != nil || string(data) != want) {
				t.Errorf("batch %d has %d other bytes, %v", f.Number, len(data), err)
			}
			second.Settle(f.Records, f.Number, "a", 0, f.Spans, true)
		}
		second.Close()
	})
}

// FuzzRecord parses any bytes as the records of batches and marks.
func FuzzRecord(f *testing.F) {
	batch, batchErr := batchRecord(batchOf(1), []byte("data"))
	marks, marksErr := marksRecord([]mark{{Exporter: "a", Number: 1, Spans: 3}})
	if err := errors.Join(batchErr, marksErr); err != nil {
		f.Fatal(err)
	}
	f.Add(batch[1:])
	f.Add(marks[1:])
	f.Fuzz(func(t *testing.T, record []byte) {
		if b, data, err := parseBatch(record); err == nil && (len(data) > len(record) || b.Spans > len(record)) {
			t.Errorf("%d spans, %d bytes of %d", b.Spans, len(data), len(record))
		}
		if list, err := parseMarks(record); err == nil && len(list) > len(record) {
			t.Errorf("%d marks of %d bytes", len(list), len(record))
		}
	})
}
