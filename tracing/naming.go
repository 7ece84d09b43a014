package tracing

import (
	"fmt"
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

// names says under which names a group of attributes is set.
type names uint8

const (
	rayNames names = 1 << iota
	stableNames
)

func (n names) ray() bool    { return n&rayNames != 0 }
func (n names) stable() bool { return n&stableNames != 0 }

func parseNames(mode string) (names, bool) {
	switch mode {
	case SemconvRay:
		return rayNames, true
	case SemconvStable:
		return stableNames, true
	case SemconvDup:
		return rayNames | stableNames, true
	}
	return 0, false
}

// naming has the names of the three groups: Serve's own attributes, those of
// HTTP and those of RPC.
type naming struct{ serve, http, rpc names }

// newNaming resolves the modes of c, which must be valid.
func (c Config) newNaming() naming {
	var n naming
	n.serve, _ = parseNames(c.Semconv)
	n.http, n.rpc = n.serve, n.serve
	if c.SemconvHTTP != "" {
		n.http, _ = parseNames(c.SemconvHTTP)
	}
	if c.SemconvRPC != "" {
		n.rpc, _ = parseNames(c.SemconvRPC)
	}
	return n
}

// current says whether any name is today's, so that the scope's schema holds.
func (n naming) current() bool { return (n.serve | n.http | n.rpc).stable() }

// of is the group that a call's protocol belongs to.
func (n naming) of(p Protocol) names {
	if p.overHTTP() {
		return n.http
	}
	return n.rpc
}

// semconvFaults are those of the three modes.
func (c Config) semconvFaults() []error {
	var faults []error
	for _, m := range []struct{ what, mode string }{
		{"semconv mode", c.Semconv}, {"semconv mode of HTTP", c.SemconvHTTP}, {"semconv mode of RPC", c.SemconvRPC},
	} {
		if _, known := parseNames(m.mode); !known && (m.mode != "" || m.what == "semconv mode") {
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
