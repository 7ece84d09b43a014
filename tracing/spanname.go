package tracing

import (
	"hash/maphash"
	"sync/atomic"
)

// spanNames keeps the names of spans made lately. There are few, for they are made
// of what an application shows, and putting one together costs as much as two of
// its attributes. Where there are many after all, or long ones, each is made anew.
type spanNames [64]atomic.Pointer[spanName]

type spanName struct {
	family, deployment, method, route string
	text                              string
}

// longestName is of what is kept: clients of gRPC choose their methods.
const longestName = 256

var spanNamesSeed = maphash.MakeSeed()

// of gives the words of a name with a space between them, and where there is a
// route, that as the last, be it empty: a family has one always, or never.
func (c *spanNames) of(family, deployment, method string, routes ...string) string {
	route := ""
	sum := maphash.String(spanNamesSeed, deployment) + 3*maphash.String(spanNamesSeed, method) + uint64(len(family))
	if len(routes) > 0 {
		route = routes[0]
		sum += 5 * maphash.String(spanNamesSeed, route)
	}
	slot := &c[sum%uint64(len(c))]
	if n := slot.Load(); n != nil && n.method == method && n.route == route && n.deployment == deployment && n.family == family {
		return n.text
	}
	text := family + " " + deployment + " " + method
	if len(routes) > 0 {
		text += " " + route
	}
	if len(text) <= longestName {
		slot.Store(&spanName{family: family, deployment: deployment, method: method, route: route, text: text})
	}
	return text
}
