package httpproxy

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/servetrace/servetrace/serving/internal/cause"
	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// Route is a path prefix and the handler of the requests under it.
type Route struct {
	Deployment *router.Deployment // the app's ingress, which runs the handler
	Handler    http.Handler
	Prefix     string
	Timeout    time.Duration // bounds the time of a request; no limit if not positive
}

// route is a Route with the data that the proxy needs for it.
type route struct {
	Route

	pattern func(*http.Request) string // nil if the handler has no patterns
	ingress *metrics.Ingress
}

// routeTable finds the route for a path by its longest prefix. Longer prefixes come first.
type routeTable []*route

func newRouteTable(routes []Route, counts *metrics.Proxy) routeTable {
	table := make(routeTable, len(routes))
	for i, rt := range routes {
		table[i] = &route{Route: rt, pattern: patternOf(rt.Handler), ingress: counts.Ingress(rt.Deployment.App, rt.Deployment.Name)}
	}
	slices.SortStableFunc(table, func(a, b *route) int { return cmp.Compare(len(b.Prefix), len(a.Prefix)) })
	return table
}

// match finds the route of u and the path that its app sees. A table has a
// handful of prefixes, for which a scan is faster than a tree.
func (t routeTable) match(u *url.URL) (rt *route, path, rawPath string, ok bool) {
	for _, rt := range t {
		if path, rawPath, ok := cutPrefix(u.Path, u.RawPath, rt.Prefix); ok {
			return rt, path, rawPath, true
		}
	}
	return nil, "", "", false
}

// cutPrefix removes prefix from path, if prefix ends where a segment of path ends. It
// also removes prefix from rawPath, the encoded path, which is empty if path has its
// usual encoding. An encoded slash (%2F) belongs to a segment and does not end it.
// Otherwise /api%2Fx would reach the app at /api.
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

// cutEncoded removes n decoded bytes from the start of raw. It fails if one of them is an
// encoded slash, or if the rest does not begin with a plain slash.
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

// patterned is a handler that names its own routes.
type patterned interface {
	RoutePattern(*http.Request) string
}

// patternOf returns the function that names h's routes, or nil.
func patternOf(h http.Handler) func(*http.Request) string {
	switch h := h.(type) {
	case patterned:
		return h.RoutePattern
	case *http.ServeMux:
		return func(r *http.Request) string { return muxPattern(h, r) }
	}
	return nil
}

// muxPattern returns the path of the pattern that mux matches. For CONNECT it is "",
// because the mux may return the client's own path, a new route name for every request.
func muxPattern(mux *http.ServeMux, r *http.Request) string {
	if r.Method == http.MethodConnect {
		return ""
	}
	_, pattern := mux.Handler(r)
	return trimPattern(pattern)
}

// trimPattern returns the path of a ServeMux pattern "[METHOD ][HOST]/[PATH]", without
// the closing {$} of an exact match.
func trimPattern(pattern string) string {
	slash := strings.IndexByte(pattern, '/')
	if slash < 0 {
		return ""
	}
	return strings.TrimSuffix(pattern[slash:], "{$}")
}

// name returns the route for spans. If the app has a pattern for r, the route is the
// prefix with that pattern, otherwise the prefix. r is the request as the app gets it.
func (rt *route) name(r *http.Request) string {
	if rt.pattern == nil {
		return rt.Prefix
	}
	pattern := rt.pattern(r)
	if pattern == "" || rt.Prefix == "/" {
		return cmp.Or(pattern, rt.Prefix)
	}
	if pattern == "/" {
		return rt.Prefix
	}
	return rt.Prefix + "/" + strings.TrimPrefix(pattern, "/")
}

// remainder returns the part of a matched path below the prefix; empty if the path is the
// prefix.
func (rt *route) remainder(path string) string {
	if rt.Prefix == "/" {
		return path
	}
	return strings.TrimPrefix(path, rt.Prefix)
}

// rebase adds the prefix to a Location with another form of the path that the app sees. A
// ServeMux redirects /sub to /sub/, and /a//b to /a/b, and does not know the prefix.
// Other locations stay unchanged.
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

// tidy returns p without double slashes, dots and a slash at its end.
func tidy(p string) string { return path.Clean("/" + p) }

func (rt *route) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if rt.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rt.Timeout, cause.ErrRequestTimeout)
}
