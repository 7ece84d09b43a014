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

// Route is a path prefix, and the handler for requests with this prefix in their paths.
type Route struct {
	Deployment *router.Deployment // the ingress deployment of the app; its replicas run the handler
	Handler    http.Handler
	Prefix     string
	Timeout    time.Duration // longest time from a request to its response; no limit if not positive
}

// route is a Route with the data that the proxy needs for it.
type route struct {
	Route

	pattern func(*http.Request) string // returns the handler's own pattern for a request; nil if the handler has no patterns
	ingress *metrics.Ingress
}

// routeTable has the routes of all apps. Longer prefixes come first, so that a path matches
// the route with the longest prefix.
type routeTable []*route

func newRouteTable(routes []Route, counts *metrics.Proxy) routeTable {
	table := make(routeTable, len(routes))
	for i, rt := range routes {
		table[i] = &route{Route: rt, pattern: patternOf(rt.Handler), ingress: counts.Ingress(rt.Deployment.App, rt.Deployment.Name)}
	}
	slices.SortStableFunc(table, func(a, b *route) int { return cmp.Compare(len(b.Prefix), len(a.Prefix)) })
	return table
}

// match finds the route of u. It also returns the path without the route's prefix, decoded
// and encoded. A table has a handful of prefixes, for which a scan is faster than a tree.
func (t routeTable) match(u *url.URL) (rt *route, path, rawPath string, ok bool) {
	for _, rt := range t {
		if path, rawPath, ok := cutPrefix(u.Path, u.RawPath, rt.Prefix); ok {
			return rt, path, rawPath, true
		}
	}
	return nil, "", "", false
}

// cutPrefix removes prefix from path, if prefix ends at the end of a segment of path. It also
// removes prefix from rawPath, the encoded path, which is empty if path has its usual
// encoding. An encoded slash (%2F) does not end a segment. Otherwise a request for
// /api%2Fx would reach the app at /api.
func cutPrefix(path, rawPath, prefix string) (restPath, restRaw string, ok bool) {
	if prefix == "/" {
		return path, rawPath, path == "" || path[0] == '/' // the path of a CONNECT request is empty
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

// cutEncoded removes the first n bytes of an encoded path, of which each %XX counts as one
// byte. It fails if it would remove an encoded slash. It also fails if bytes remain and
// they do not begin with a plain slash.
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

// patterned is a handler that returns the pattern of its own that a request matches.
type patterned interface {
	RoutePattern(*http.Request) string
}

// patternOf returns the function that finds the pattern of h for a request. It returns nil
// if h has no patterns.
func patternOf(h http.Handler) func(*http.Request) string {
	switch h := h.(type) {
	case patterned:
		return h.RoutePattern
	case *http.ServeMux:
		return func(r *http.Request) string { return muxPattern(h, r) }
	}
	return nil
}

// muxPattern returns the path of the pattern of mux that r matches. For CONNECT it is "",
// because the mux may return the client's own path, which would be a new route name for
// each request.
func muxPattern(mux *http.ServeMux, r *http.Request) string {
	if r.Method == http.MethodConnect {
		return ""
	}
	_, pattern := mux.Handler(r)
	return trimPattern(pattern)
}

// trimPattern returns the path of a ServeMux pattern "[METHOD ][HOST]/[PATH]". It removes
// the {$} at the end, which marks an exact match.
func trimPattern(pattern string) string {
	slash := strings.IndexByte(pattern, '/')
	if slash < 0 {
		return ""
	}
	return strings.TrimSuffix(pattern[slash:], "{$}")
}

// name returns the name of the route in spans: the prefix, followed by the app's own pattern
// for r if there is one. r is the request as the app sees it.
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

// remainder returns the part of a matched path after the prefix. It is empty if the path
// equals the prefix.
func (rt *route) remainder(path string) string {
	if rt.Prefix == "/" {
		return path
	}
	return strings.TrimPrefix(path, rt.Prefix)
}

// rebase adds the route's prefix to the Location of a redirect to another form of the same
// path. A ServeMux redirects /sub to /sub/, and /a//b to /a/b, and does not know the prefix.
// For other locations rebase returns false. path is the path of the request that the app
// sees.
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

// tidy returns the shortest form of the path p: without double slashes, without the segments
// "." and "..", and without a slash at the end.
func tidy(p string) string { return path.Clean("/" + p) }

func (rt *route) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if rt.Timeout <= 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, rt.Timeout, cause.ErrRequestTimeout)
}
