package suite

import (
	"path/filepath"
	"regexp"
	"strings"

	"github.com/servetrace/servetrace/bench/internal/sink"
)

// Env is the environment of all cases of a run. TMPDIR is a folder of the run.
type Env struct {
	// Bin is the folder with plugins.
	Bin string
	// Sink receives the spans of all rows.
	Sink *sink.Sink
	// Profiles is a folder for profiles of the measured processes. If it is empty, no
	// profiles are taken.
	Profiles string
}

var notInFileName = regexp.MustCompile("[^0-9A-Za-z]+")

// Profile returns the prefix of a case's profiles, or an empty text if none are
// taken. The last repeat overwrites the profiles of earlier repeats.
func (e *Env) Profile(suite, shape, row string) string {
	if e.Profiles == "" {
		return ""
	}
	name := strings.Join([]string{suite, shape, row}, "-")
	return filepath.Join(e.Profiles, notInFileName.ReplaceAllString(name, "-"))
}
