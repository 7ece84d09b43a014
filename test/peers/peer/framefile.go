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
)

// frameFile is a file of messages, each behind its length in four bytes, big
// end first, which a peer appends to. Each is read once.
type frameFile struct {
	tb   testing.TB
	path string
	// offset is behind the last message that was read.
	offset int64
}

// next gives the messages that are whole and have not been read. One whose end
// is not there yet waits for the next call.
func (f *frameFile) next() [][]byte {
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

// raw is all that is in the file.
func (f *frameFile) raw() []byte {
	f.tb.Helper()
	text, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.tb.Fatal(err)
	}
	return text
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
