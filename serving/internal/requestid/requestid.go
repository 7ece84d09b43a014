// Package requestid decides which request ids of clients the proxies repeat. It has a
// single file, requestid.go.
package requestid

import (
	"strings"

	"github.com/google/uuid"
)

// maxLen bounds the ids of clients, which are repeated in every span and log line. A UUID
// has 36 characters, the longest ids in common use about 100.
const maxLen = 128

// Fit returns a client's id if it is fit to be repeated in headers, logs and file names,
// else a fresh UUIDv4. The empty id is not fit.
func Fit(id string) string {
	if id != "" && len(id) <= maxLen && !strings.ContainsFunc(id, unfit) {
		return id
	}
	return uuid.NewString()
}

// unfit reports whether r is not a character of UUIDs, ULIDs, base64 and the ids of the
// common load balancers (Root=1-67891233-abcdef012345678912345678). Characters that could
// end a header, a quoted string or a list are unfit.
func unfit(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return false
	}
	return !strings.ContainsRune("-_.~:/+=@;|#", r)
}
