package pipeline

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestRecent: the copies are bounded in bytes, and so is the copying in time.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRecent(800)
		for i := range 1000 {
			r.add(time.Now(), bytes.Repeat([]byte{byte(i)}, 50))
			<-time.After(10 * time.Millisecond)
		}
		// 100 bytes in each of 10 s; 16 fit.
		if len(r.batches) != 16 || r.bytes != 800 {
			t.Errorf("%d batches with %d bytes are kept, want 16 with 800", len(r.batches), r.bytes)
		}
		if first, last := r.batches[0][0], r.batches[15][0]; first == last {
			t.Errorf("the kept batches are of one moment: %d and %d", first, last)
		}
		one := bytes.Repeat([]byte{1}, 800)
		<-time.After(time.Minute)
		r.add(time.Now(), one)
		one[0] = 9
		if len(r.batches) != 1 || r.batches[0][0] != 1 {
			t.Errorf("a batch as large as the bound: %d batches, want its copy alone", len(r.batches))
		}
		<-time.After(time.Second)
		r.add(time.Now(), []byte{3}) // the credit is below zero for eight seconds
		if len(r.batches) != 1 {
			t.Error("copied right after a large batch")
		}
		<-time.After(time.Minute)
		r.add(time.Now(), make([]byte, 801))
		if r.bytes != 800 {
			t.Errorf("%d bytes after a batch above the bound", r.bytes)
		}
		none := NewRecent(0)
		none.add(time.Now(), []byte{1})
		if none.batches != nil {
			t.Error("a batch is kept although none are wanted")
		}
	})
}
