package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// ReadFiltered returns the number of spans that each processor dropped. values are the values of
// the trailer MetaFiltered. counts is nil if there are no valid values. Malformed values are
// skipped. unread describes the last malformed value, and is empty if there is none.
func ReadFiltered(values []string) (counts map[string]uint64, unread string) {
	for _, value := range values {
		processor, count, _ := strings.Cut(value, "=")
		n, err := strconv.ParseUint(count, 10, 32)
		if err != nil || processor == "" {
			unread = fmt.Sprintf("%s: %q: want PROCESSOR=COUNT", MetaFiltered, Clip(value))
			continue
		}
		if counts == nil {
			counts = map[string]uint64{}
		}
		counts[processor] += n
	}
	return counts, unread
}
