// Package requestid makes request ids. It also decides which ids of clients the proxies
// use in responses, spans and logs. It has a single file, requestid.go.
package requestid

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"

	"github.com/google/uuid"
)

// maxLen is the largest length of a client's id, in bytes. The bound is needed because each
// span and log line of the request has the id. The longest ids in common use have about
// 100 bytes.
const maxLen = 128

// Fit returns the id of a client if it is safe in headers, logs and file names. Otherwise, and
// for an empty id, it returns a new UUIDv4.
func Fit(id string) string {
	if id != "" && len(id) <= maxLen && !strings.ContainsFunc(id, unfit) {
		return id
	}
	return New()
}

// New returns a random UUIDv4. The numbers are not cryptographically random, because request
// ids are not secret.
func New() string {
	var id uuid.UUID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // these four bits are the version, 4
	id[8] = id[8]&0x3f | 0x80 // these two bits are the variant of RFC 9562
	return id.String()
}

// unfit reports whether a request id must not contain the character r. Ids may contain the
// characters of UUIDs, ULIDs, base64 and the ids of common load balancers, such as
// Root=1-67891233-abcdef012345678912345678. They must not contain characters that could end
// a header, a quoted string or a list.
func unfit(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_.~:/+=@;|#", r)
}
