package serving

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
)

// App is an application: a deployment that takes its requests, the ingress, and the
// deployments that its code calls. [NewApp] builds it. An App does nothing until a [Server]
// serves it. Only one server can serve it.
type App struct {
	name    string
	prefix  string
	ingress *Deployment
	others  []*Deployment
	timeout *time.Duration // bound on the time of an HTTP request; nil: Config.RequestTimeout
}

// AppOption changes an [App] while it is built.
type AppOption struct{ apply func(*App) }

// WithRoutePrefix sets the path under which clients reach an app by HTTP. The default is
// "/". A prefix matches whole path segments: "/api" matches /api and /api/x, and not /apix.
// If the prefixes of several apps match, the longest prefix wins. The handler gets the path
// without the prefix, or "/" if nothing is left.
//
// A prefix begins with "/" and, except for "/" itself, does not end with "/". It has no
// wildcards. It does not begin with "/-/", because the proxy serves such paths itself.
func WithRoutePrefix(prefix string) AppOption {
	return AppOption{func(a *App) { a.prefix = prefix }}
}

// WithDeployments adds deployments that the app's code calls by [Handle]. Several uses of
// the option add up. All deployments of an app, including the ingress, must have different
// names. A deployment belongs to one app only.
func WithDeployments(ds ...*Deployment) AppOption {
	return AppOption{func(a *App) { a.others = append(a.others, ds...) }}
}

// WithRequestTimeout sets the longest time of an HTTP request to the app, instead of
// [Config.RequestTimeout]. Zero or less means no limit, as an app with web sockets and long
// streams may need.
func WithRequestTimeout(d time.Duration) AppOption {
	return AppOption{func(a *App) { a.timeout = &d }}
}

// NewApp builds an application from the deployment that takes its requests. A name has 1 to
// 63 letters, digits, "-", "_" or ".", because spans, logs and file names contain it. NewApp
// returns no error: [New] checks all apps and reports all faults together.
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

// overHTTP reports whether the app takes HTTP requests and so needs a route prefix. If its
// ingress has only gRPC services, it takes none.
func (a *App) overHTTP() bool {
	return a.ingress == nil || a.ingress.handler != nil || !a.ingress.rpcs.Any()
}

// check returns all faults of the app, joined.
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

// checkApps returns all faults of the apps, joined. prefixes has the route prefix of each
// app, from the program or the operator.
func checkApps(apps []*App, prefixes map[*App]string) error {
	var faults faults
	if len(apps) == 0 {
		faults.add("no apps")
	}
	names, taken, owners := map[string]bool{}, map[string]string{}, map[*Deployment]string{}
	for i, a := range apps {
		if a == nil {
			faults.add("app %d is nil", i)
			continue
		}
		if err := a.check(); err != nil {
			faults.add("app %q: %w", a.name, err)
		}
		if names[a.name] {
			faults.add("app %q: name used twice", a.name)
		}
		names[a.name] = true
		if prefix := prefixes[a]; a.overHTTP() {
			if other, used := taken[prefix]; used {
				faults.add("app %q: route prefix %q already belongs to app %q", a.name, prefix, other)
			}
			taken[prefix] = a.name
		}
		for _, d := range a.deployments() {
			if other, owned := owners[d]; owned && d != nil && other != a.name {
				faults.add("app %q: deployment %q already belongs to app %q: build one for each", a.name, d.name, other)
			}
			owners[d] = a.name
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
