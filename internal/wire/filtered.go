package wire

import (
	"fmt"
	"strconv"
	"strings"
)

// ReadFiltered reads the values of the trailer MetaFiltered: how many spans each
// processor dropped, nil where none did. unread tells the last value that is no
// PROCESSOR=COUNT and was passed over; empty: there is none.
func ReadFiltered(values []string) (counts map[string]uint64, unread string) {
	for _, value := range values {
		processor, count, _ := strings.Cut(value, "=")
		n, err := strconv.ParseUint(count, 10, 32)
		if err != nil || processor == "" {
			unread = fmt.Sprintf("%s: %q is no PROCESSOR=COUNT", MetaFiltered, Clip(value))
			continue
		}
		if counts == nil {
			counts = map[string]uint64{}
		}
		counts[processor] += n
	}
	return counts, unread
}
