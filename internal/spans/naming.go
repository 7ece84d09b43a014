package spans

import (
	"github.com/servetrace/servetrace/tracing"
)

// names is a set of the two kinds of attribute names: Ray's names and OpenTelemetry's current
// (stable) names.
type names uint8

const (
	rayNames names = 1 << iota
	stableNames
)

func (n names) ray() bool    { return n&rayNames != 0 }
func (n names) stable() bool { return n&stableNames != 0 }

// namesOf returns the kinds of names that a mode of SERVE_TRACING_SEMCONV uses. The mode must
// be valid.
func namesOf(mode string) names {
	switch mode {
	case tracing.SemconvStable:
		return stableNames
	case tracing.SemconvDup:
		return rayNames | stableNames
	}
	return rayNames
}

// naming has the kinds of names in use for three groups of attributes: Serve's own
// attributes, HTTP and RPC.
type naming struct{ serve, http, rpc names }

// newNaming returns the naming for the modes in c, which must be valid. The mode of Serve's
// attributes is the default for HTTP and RPC.
func newNaming(c tracing.Config) naming {
	n := naming{serve: namesOf(c.Semconv)}
	n.http, n.rpc = n.serve, n.serve
	if c.SemconvHTTP != "" {
		n.http = namesOf(c.SemconvHTTP)
	}
	if c.SemconvRPC != "" {
		n.rpc = namesOf(c.SemconvRPC)
	}
	return n
}

// current reports whether any group uses OpenTelemetry's current names. The spans' scope
// then has a schema URL.
func (n naming) current() bool { return (n.serve | n.http | n.rpc).stable() }

// of returns the kinds of names for the group of a protocol, which is HTTP or RPC.
func (n naming) of(p Protocol) names {
	if p.overHTTP() {
		return n.http
	}
	return n.rpc
}
