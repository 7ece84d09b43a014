package measure

import (
	"math/bits"
	"time"
)

// subBits divides each power of two into 32 buckets: a percentile is at most
// 3 % above the value that it stands for.
const subBits = 5

// Histogram counts durations in buckets whose width grows with the value. It
// does not allocate, and adding costs a few nanoseconds. The zero value is
// empty. Not safe for concurrent use: one each, and Merge.
type Histogram struct {
	buckets [64 << subBits]uint32
	count   uint64
	sum     uint64
	max     uint64
}

// Add counts d; one below zero counts as zero.
func (h *Histogram) Add(d time.Duration) {
	n := uint64(max(0, d))
	h.buckets[bucketOf(n)]++
	h.count++
	h.sum += n
	h.max = max(h.max, n)
}

// Merge adds what other has.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range &other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.sum += other.sum
	h.max = max(h.max, other.max)
}

// Count is how many durations there are.
func (h *Histogram) Count() uint64 { return h.count }

// Mean is their mean; zero where there are none.
func (h *Histogram) Mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return time.Duration(h.sum / h.count)
}

// Max is the longest.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile is a duration that at least the share q (0 to 1) of all do not
// exceed: the upper end of a bucket, at most Max; zero where there are none.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := uint64(q*float64(h.count-1)) + 1
	var seen uint64
	for i, n := range &h.buckets {
		if seen += uint64(n); seen >= rank {
			return time.Duration(min(upperEnd(i), h.max))
		}
	}
	return time.Duration(h.max)
}

// bucketOf: values below 2^subBits have a bucket each; above, the bucket is the
// exponent and the first subBits bits behind the leading one.
func bucketOf(n uint64) int {
	if n < 1<<subBits {
		return int(n)
	}
	shift := bits.Len64(n) - 1 - subBits
	return (shift+1)<<subBits + int(n>>shift) - 1<<subBits
}

// upperEnd is the largest value of a bucket.
func upperEnd(i int) uint64 {
	if i < 1<<subBits {
		return uint64(i)
	}
	shift := i>>subBits - 1
	return (uint64(i&(1<<subBits-1))+1<<subBits+1)<<shift - 1
}
