package serving

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// App is an application. It has one deployment that gets its requests (the ingress), under
// one route prefix, and the deployments that its code calls. Build it with [NewApp]. It
// does nothing until a [Server] serves it. It can be used in one server only.
type App struct {
	name    string
	prefix  string
	ingress *Deployment
	others  []*Deployment
	timeout *time.Duration // timeout of HTTP requests to the app; nil: the server's setting
}

// AppOption changes an [App] while it is built.
type AppOption struct{ apply func(*App) }

// WithRoutePrefix sets the path under which an app is reached; the default is
// "/". A prefix matches whole path segments: "/api" matches /api and /api/x,
// not /apix. If several apps match, the longest prefix wins. The app sees
// paths without the prefix, and "/" if nothing is left.
//
// A prefix begins with "/" and, except for "/" itself, does not end with "/". It has no
// wildcards, and does not begin with "/-/", which is for paths of the proxy itself.
func WithRoutePrefix(prefix string) AppOption {
	return AppOption{func(a *App) { a.prefix = prefix }}
}

// WithDeployments adds deployments that the app's code calls by handle. If the option is
// given several times, all these deployments are added. Their names must differ from each
// other and from the name of the ingress. A deployment belongs to one app only.
func WithDeployments(ds ...*Deployment) AppOption {
	return AppOption{func(a *App) { a.others = append(a.others, ds...) }}
}

// WithRequestTimeout sets the longest time of an HTTP request to the app, instead of
// [Config.RequestTimeout]. Zero or less means no limit, as an app with web sockets and long
// streams may need.
func WithRequestTimeout(d time.Duration) AppOption {
	return AppOption{func(a *App) { a.timeout = &d }}
}

// NewApp builds an application. Names are made of letters, digits, "-", "_" and "."; they
// appear in spans, logs and file names. [New] reports all their faults together.
func NewApp(name string, ingress *Deployment, opts ...AppOption) *App {
	a := &App{name: name, prefix: "/", ingress: ingress}
	for _, o := range opts {
		o.apply(a)
	}
	return a
}

// deployments returns all deployments of the app, the ingress first.
func (a *App) deployments() []*Deployment {
	return append([]*Deployment{a.ingress}, a.others...)
}

// overHTTP reports whether the app gets HTTP requests. An ingress with only gRPC services
// needs no route.
func (a *App) overHTTP() bool {
	return a.ingress == nil || a.ingress.handler != nil || !a.ingress.rpcs.Any()
}

func (a *App) check() error {
	var faults faults
	if !validName(a.name) {
		faults.add("name %q: want 1 to %d letters, digits, '-', '_' or '.'", a.name, maxNameLen)
	}
	if !validPrefix(a.prefix) {
		faults = append(faults, prefixFault(a.prefix))
	}
	if a.ingress == nil {
		faults.add("no ingress deployment")
	}
	names := map[string]bool{}
	for i, d := range a.deployments() {
		switch {
		case d == nil && i == 0: // reported above as a missing ingress
		case d == nil:
			faults.add("deployment %d of WithDeployments is nil", i-1)
		case names[d.name]:
			faults.add("deployment %q: name used twice", d.name)
		default:
			names[d.name] = true
			if err := d.check(d == a.ingress); err != nil {
				faults.add("deployment %q: %w", d.name, err)
			}
		}
	}
	return errors.Join(faults...)
}

// maxNameLen bounds a name, so that the names of app, deployment and replica fit into one
// file name.
const maxNameLen = 63

func validName(name string) bool {
	if name == "" || len(name) > maxNameLen {
		return false
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

func prefixFault(prefix string) error {
	return fmt.Errorf("route prefix %q: want \"/\" or a clean path such as /api, without wildcards, outside /-/", prefix)
}

func validPrefix(p string) bool {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.ContainsAny(p, "{}?#%") {
		return false
	}
	return p != "/-" && !strings.HasPrefix(p, "/-/")
}
