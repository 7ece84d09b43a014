package spans

import (
	"github.com/servetrace/servetrace/tracing"
)

type names uint8

const (
	rayNames names = 1 << iota
	stableNames
)

func (n names) ray() bool    { return n&rayNames != 0 }
func (n names) stable() bool { return n&stableNames != 0 }

// namesOf returns the names of a mode, which must be valid.
func namesOf(mode string) names {
	switch mode {
	case tracing.SemconvStable:
		return stableNames
	case tracing.SemconvDup:
		return rayNames | stableNames
	}
	return rayNames
}

// naming holds the names of the three groups: Serve's own attributes, HTTP and RPC.
type naming struct{ serve, http, rpc names }

// newNaming resolves the modes of c, which must be valid.
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

// of returns the names of the group for a protocol.
func (n naming) of(p Protocol) names {
	if p.overHTTP() {
		return n.http
	}
	return n.rpc
}
