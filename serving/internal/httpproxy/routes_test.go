package httpproxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving/internal/metrics"
	"github.com/servetrace/servetrace/serving/internal/router"
)

func TestRouteMatch(t *testing.T) {
	var routes []Route
	for _, p := range []string{"/", "/api", "/api/v2", "/a b"} {
		routes = append(routes, Route{Prefix: p, Deployment: new(router.Deployment)})
	}
	table := newRouteTable(routes, metrics.New().Proxy(metrics.HTTP))
	for _, tt := range []struct {
		target       string
		prefix, path string
		escaped      string
	}{
		{"/", "/", "/", "/"},
		{"/x", "/", "/x", "/x"},
		{"/api", "/api", "/", "/"},
		{"/api/", "/api", "/", "/"},
		{"/api/x", "/api", "/x", "/x"},
		{"/apix", "/", "/apix", "/apix"},
		{"/api/v2", "/api/v2", "/", "/"},
		{"/api/v2/x/y", "/api/v2", "/x/y", "/x/y"},
		{"/api/v22", "/api", "/v22", "/v22"},
		{"/api//v2", "/api", "//v2", "//v2"},
		{"/api%2Fx", "/", "/api/x", "/api%2Fx"},
		{"/api%2fv2/x", "/", "/api/v2/x", "/api%2fv2/x"},
		{"/%61pi/x", "/api", "/x", "/x"},
		{"/api/x%2Fy", "/api", "/x/y", "/x%2Fy"},
		{"/a%20b/c%20d", "/a b", "/c d", "/c%20d"},
	} {
		u, err := url.ParseRequestURI(tt.target)
		if err != nil {
			t.Fatal(err)
		}
		rt, path, raw, ok := table.match(u)
		if !ok {
			t.Errorf("%s: no match", tt.target)
			continue
		}
		escaped := (&url.URL{Path: path, RawPath: raw}).EscapedPath()
		if rt.Prefix != tt.prefix || path != tt.path || escaped != tt.escaped {
			t.Errorf("%s: prefix %q path %q escaped %q, want %q %q %q",
				tt.target, rt.Prefix, path, escaped, tt.prefix, tt.path, tt.escaped)
		}
	}
	if _, _, _, ok := table.match(&url.URL{Path: "*"}); ok {
		t.Error("the path * (OPTIONS *) matched a prefix")
	}
}

// FuzzCutPrefix: what is cut off an encoded path decodes to what is cut off the
// decoded one.
func FuzzCutPrefix(f *testing.F) {
	for _, target := range []string{"/api/x", "/api%2Fx", "/%61pi/x%2Fy", "/api", "/ap%69", "/api/%zz", "//api"} {
		f.Add(target)
	}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(u.Path, "/") {
			return
		}
		path, raw, ok := cutPrefix(u.Path, u.RawPath, "/api")
		if !ok {
			return
		}
		if !strings.HasPrefix(path, "/") {
			t.Errorf("%q leaves path %q", target, path)
		}
		if raw == "" {
			return
		}
		if decoded, err := url.PathUnescape(raw); err != nil || decoded != path {
			t.Errorf("%q leaves %q, which decodes to %q (%v), and path %q", target, raw, decoded, err, path)
		}
	})
}

type namedRoutes struct{ http.Handler }

func (namedRoutes) RoutePattern(r *http.Request) string {
	if r.URL.Path == "/users/7" {
		return "/users/{id}"
	}
	return ""
}

func TestRouteName(t *testing.T) {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	mux := http.NewServeMux()
	mux.Handle("GET /users/{id}", nothing)
	mux.Handle("/files/", nothing)
	mux.Handle("example.com/exact/{$}", nothing)
	root := http.NewServeMux()
	root.Handle("/", nothing)
	for _, tt := range []struct {
		prefix  string
		handler http.Handler
		method  string
		path    string
		want    string
	}{
		{"/", mux, "GET", "/users/7", "/users/{id}"},
		{"/api", mux, "GET", "/users/7", "/api/users/{id}"},
		{"/api", mux, "POST", "/users/7", "/api"}, // 405
		{"/api", mux, "GET", "/nothing", "/api"},  // 404
		{"/", mux, "GET", "/nothing", "/"},
		{"/", mux, "GET", "/files/a/b", "/files/"},
		{"/", mux, "GET", "/files", "/files/"}, // redirected
		{"/", mux, "GET", "/exact/", "/exact/"},
		{"/", mux, "CONNECT", "/files", "/"},
		{"/", root, "GET", "/x", "/"},
		{"/api", root, "GET", "/x", "/api"},
		{"/api", nothing, "GET", "/x", "/api"},
		{"/api", namedRoutes{nothing}, "GET", "/users/7", "/api/users/{id}"},
		{"/api", namedRoutes{nothing}, "GET", "/x", "/api"},
	} {
		rt := &route{Route: Route{Prefix: tt.prefix}, pattern: patternOf(tt.handler)}
		r := httptest.NewRequest(tt.method, "http://example.com"+tt.path, nil)
		if got := rt.name(r); got != tt.want {
			t.Errorf("%s %s below %s: route %q, want %q", tt.method, tt.path, tt.prefix, got, tt.want)
		}
	}
}
