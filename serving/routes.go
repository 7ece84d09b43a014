package serving

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/serving/internal/metrics"
)

// routeTable finds the app for a path by longest prefix. It never changes after
// newRouteTable, so that it needs no lock.
type routeTable struct {
	routes []*route // longest prefix first
}

// route joins a prefix with the deployment that answers under it.
type route struct {
	*target // the app's ingress deployment

	timeout time.Duration // of its requests; none if not positive
	prefix  string
	pattern func(*http.Request) string // nil if the handler has no patterns
	ingress *metrics.Ingress           // of the HTTP proxy
}

func newRouteTable(routes []*route) *routeTable {
	sorted := slices.Clone(routes)
	slices.SortStableFunc(sorted, func(a, b *route) int { return cmp.Compare(len(b.prefix), len(a.prefix)) })
	return &routeTable{routes: sorted}
}

// match finds the route of u and the path that its app sees. A table has a
// handful of prefixes, for which a scan is faster than a tree.
func (t *routeTable) match(u *url.URL) (rt *route, path, rawPath string, ok bool) {
	for _, rt := range t.routes {
		if path, rawPath, ok := cutPrefix(u.Path, u.RawPath, rt.prefix); ok {
			return rt, path, rawPath, true
		}
	}
	return nil, "", "", false
}

// cutPrefix takes prefix off path, if it covers whole segments of it, and off
// rawPath, its encoded form (empty where that is the usual one). A slash that
// came encoded (%2F) belongs to a segment and ends none: otherwise /api%2Fx
// would reach the app at /api.
func cutPrefix(path, rawPath, prefix string) (restPath, restRaw string, ok bool) {
	if prefix == "/" {
		return path, rawPath, path == "" || path[0] == '/' // the path of CONNECT is empty
	}
	rest, found := strings.CutPrefix(path, prefix)
	if !found || rest != "" && rest[0] != '/' {
		return "", "", false
	}
	if rawPath != "" {
		restRaw, ok = cutEncoded(rawPath, len(prefix))
		if !ok {
			return "", "", false
		}
	}
	if rest == "" {
		return "/", "", true
	}
	return rest, restRaw, true
}

// cutEncoded takes n decoded bytes off raw. It fails where one of them is an
// encoded slash, or where the rest does not begin with a plain one.
func cutEncoded(raw string, n int) (rest string, ok bool) {
	for ; n > 0; n-- {
		switch {
		case len(raw) >= 3 && raw[0] == '%':
			if strings.EqualFold(raw[:3], "%2F") {
				return "", false
			}
			raw = raw[3:]
		case raw != "":
			raw = raw[1:]
		default:
			return "", false
		}
	}
	return raw, raw == "" || raw[0] == '/'
}

// patterned is implemented by handlers that name their own routes.
type patterned interface {
	RoutePattern(*http.Request) string
}

// patternOf gives the function that names h's routes, or nil.
func patternOf(h http.Handler) func(*http.Request) string {
	switch h := h.(type) {
	case patterned:
		return h.RoutePattern
	case *http.ServeMux:
		return func(r *http.Request) string { return muxPattern(h, r) }
	}
	return nil
}

// muxPattern gives the path part of the pattern that mux matches. For CONNECT
// the mux may answer with the client's own path, which would be a new route
// name for every request: so it is not asked.
func muxPattern(mux *http.ServeMux, r *http.Request) string {
	if r.Method == http.MethodConnect {
		return ""
	}
	_, pattern := mux.Handler(r)
	return trimPattern(pattern)
}

// trimPattern leaves the path of a ServeMux pattern "[METHOD ][HOST]/[PATH]".
// The closing {$} of an exact match says nothing about the path.
func trimPattern(pattern string) string {
	slash := strings.IndexByte(pattern, '/')
	if slash < 0 {
		return ""
	}
	return strings.TrimSuffix(pattern[slash:], "{$}")
}

// name is the route as spans show it: the pattern below the prefix where the
// app has one for r, a request as the app sees it; else the prefix.
func (rt *route) name(r *http.Request) string {
	if rt.pattern == nil {
		return rt.prefix
	}
	pattern := rt.pattern(r)
	if pattern == "" || rt.prefix == "/" {
		return cmp.Or(pattern, rt.prefix)
	}
	if pattern == "/" {
		return rt.prefix
	}
	return rt.prefix + "/" + strings.TrimPrefix(pattern, "/")
}

// remainder is what of a matched path lies below the prefix; empty where the
// path is the prefix.
func (rt *route) remainder(path string) string {
	if rt.prefix == "/" {
		return path
	}
	return strings.TrimPrefix(path, rt.prefix)
}

// rebase puts the prefix before a Location that only tidies up path, the path
// that the app sees: a ServeMux sends /sub to /sub/, and /a//b to /a/b, knowing
// nothing of the prefix. Other targets are the app's own affair, and are left.
func rebase(location, prefix, path string) (string, bool) {
	if !strings.HasPrefix(location, "/") {
		return "", false
	}
	to, err := url.Parse(location)
	if err != nil || to.Host != "" {
		return "", false
	}
	if to.Path == path || tidy(to.Path) != tidy(path) {
		return "", false
	}
	return prefix + location, true
}

// tidy is path without doubled slashes, dots and a slash at its end.
func tidy(p string) string { return path.Clean("/" + p) }

// withTimeout returns ctx with the route's timeout.
func (rt *route) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if rt.timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rt.timeout, ErrRequestTimeout)
}
