package peer

import (
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// spanFile is the file that a Collector writes: messages of TracesData, each
// behind its length in four bytes, big end first. Each is read once.
type spanFile struct {
	tb   testing.TB
	path string
	// offset is behind the last message that was read, all is what they held and
	// spans the number of spans in it.
	offset int64
	all    []*tracepb.ResourceSpans
	spans  int
}

// read gives all that is in the file. A message whose end is not there yet
// waits for the next call.
func (f *spanFile) read() []*tracepb.ResourceSpans {
	f.tb.Helper()
	for _, message := range f.messages() {
		var data tracepb.TracesData
		if err := proto.Unmarshal(message, &data); err != nil {
			f.tb.Fatalf("%s: a message of %d bytes: %v", f.path, len(message), err)
		}
		for _, rs := range data.ResourceSpans {
			f.all = append(f.all, rs)
			for _, ss := range rs.ScopeSpans {
				f.spans += len(ss.Spans)
			}
		}
	}
	return f.all
}

// messages gives those that are whole and have not been read.
func (f *spanFile) messages() [][]byte {
	f.tb.Helper()
	file, err := os.Open(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		f.tb.Fatal(err)
	}
	text, err := io.ReadAll(io.NewSectionReader(file, f.offset, math.MaxInt64-f.offset))
	if err := errors.Join(err, file.Close()); err != nil {
		f.tb.Fatal(err)
	}
	var messages [][]byte
	for len(text) >= 4 {
		end := 4 + int(binary.BigEndian.Uint32(text))
		if end > len(text) {
			break
		}
		messages = append(messages, text[4:end])
		f.offset += int64(end)
		text = text[end:]
	}
	return messages
}

// waitFor looks at a count until it is n or more, and ends the test when it has
// not grown for a minute.
func waitFor(tb testing.TB, what string, n int, count func() int) {
	tb.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	seen, since := -1, time.Now()
	for {
		now := count()
		if now >= n {
			return
		}
		if now > seen {
			seen, since = now, time.Now()
		} else if time.Since(since) > patience {
			tb.Fatalf("waited for %s: there are %d, and nothing new for %v", what, now, patience)
		}
		<-tick.C
	}
}
