package tracing

import (
	"fmt"
	"slices"
	"strings"
)

// The modes of attribute names. Span names and kinds are Ray Serve's in each.
const (
	// SemconvRay has the names of Ray Serve, which are OpenTelemetry's of before
	// 2023 for HTTP and RPC.
	SemconvRay = "ray"
	// SemconvStable has OpenTelemetry's names of today, and Ray Serve's own
	// attributes below "serve.".
	SemconvStable = "stable"
	// SemconvDup has both, for the time of a change. Where both have one name,
	// its value is today's.
	SemconvDup = "dup"
)

// modes are all of them.
var modes = []string{SemconvRay, SemconvStable, SemconvDup}

// semconvFaults are those of the three modes.
func (c Config) semconvFaults() []error {
	var faults []error
	for _, m := range []struct{ what, mode string }{
		{"semconv mode", c.Semconv}, {"semconv mode of HTTP", c.SemconvHTTP}, {"semconv mode of RPC", c.SemconvRPC},
	} {
		if !slices.Contains(modes, m.mode) && (m.mode != "" || m.what == "semconv mode") {
			faults = append(faults, fmt.Errorf("%s %q is not ray, stable or dup", m.what, m.mode))
		}
	}
	return faults
}

// optIn reads the word for a group ("http") in the list of
// OTEL_SEMCONV_STABILITY_OPT_IN; empty if the list does not name it. The list is
// for every instrumentation of the process, so that other words are theirs.
//
// Source: https://opentelemetry.io/docs/specs/semconv/non-normative/http-migration/
func optIn(list, group string) (mode string) {
	for word := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(word) {
		case group + "/dup":
			return SemconvDup // wins over the group's own word
		case group:
			mode = SemconvStable
		}
	}
	return mode
}
