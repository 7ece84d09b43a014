package tracing

import (
	"fmt"
	"slices"
	"strings"
)

// The modes of attribute names. Span names and kinds are Ray Serve's in every mode.
const (
	// SemconvRay uses Ray Serve's names. For HTTP and RPC, these are OpenTelemetry's
	// names from before 2023.
	SemconvRay = "ray"
	// SemconvStable uses OpenTelemetry's current names, and Ray Serve's own attributes
	// below "serve.".
	SemconvStable = "stable"
	// SemconvDup uses both sets of names, for a migration. If a name is in both sets, its
	// current meaning applies.
	SemconvDup = "dup"
)

var modes = []string{SemconvRay, SemconvStable, SemconvDup}

// semconvErrors returns an error for each mode in c that is unknown.
func (c Config) semconvErrors() []error {
	var faults []error
	for _, m := range []struct{ name, mode string }{
		{"semconv mode", c.Semconv}, {"semconv mode of HTTP", c.SemconvHTTP}, {"semconv mode of RPC", c.SemconvRPC},
	} {
		if !slices.Contains(modes, m.mode) && (m.mode != "" || m.name == "semconv mode") {
			faults = append(faults, fmt.Errorf("%s %q is not ray, stable or dup", m.name, m.mode))
		}
	}
	return faults
}

// optIn returns the mode for a group ("http") in the list of
// OTEL_SEMCONV_STABILITY_OPT_IN, or "" if the list does not name the group. Other words
// in the list are for other instrumentations.
//
// Source: https://opentelemetry.io/docs/specs/semconv/non-normative/http-migration/
func optIn(list, group string) (mode string) {
	for word := range strings.SplitSeq(list, ",") {
		switch strings.TrimSpace(word) {
		case group + "/dup":
			return SemconvDup // this word has priority over the word without "/dup"
		case group:
			mode = SemconvStable
		}
	}
	return mode
}
