// Package requestid makes request ids, and decides which ids of clients the proxies
// repeat. It has a single file, requestid.go.
package requestid

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"
)

// maxLen bounds the length of a client's id, which is repeated in every span and log line.
// A UUID has 36 characters. The longest ids in common use have about 100.
const maxLen = 128

// Fit returns a client's id if it may be repeated in headers, logs and file names,
// otherwise a new UUIDv4. An empty id is replaced, too.
func Fit(id string) string {
	if id != "" && len(id) <= maxLen && !strings.ContainsFunc(id, unfit) {
		return id
	}
	return New()
}

// New returns a random UUIDv4. Request ids are no secrets, so the fast random generator is
// sufficient.
func New() string {
	var id uuid.UUID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	return id.String()
}

// unfit reports whether a request id must not contain r. Allowed are the characters of
// UUIDs, ULIDs, base64 and the ids of common load balancers
// (Root=1-67891233-abcdef012345678912345678). Characters that could end a header, a quoted
// string or a list are not allowed.
func unfit(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_.~:/+=@;|#", r)
}
