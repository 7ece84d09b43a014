package spans

import (
	"github.com/servetrace/servetrace/tracing"
)

// names says under which names a group of attributes is set.
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

// naming has the names of the three groups: Serve's own attributes, those of
// HTTP and those of RPC.
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

// current says whether any name is today's, so that the scope's schema holds.
func (n naming) current() bool { return (n.serve | n.http | n.rpc).stable() }

// of is the group that a call's protocol belongs to.
func (n naming) of(p Protocol) names {
	if p.overHTTP() {
		return n.http
	}
	return n.rpc
}
