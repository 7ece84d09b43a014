package serving

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// App is an application: one deployment that takes its requests (the ingress),
// reached under one route prefix. Build it with [NewApp]; it does nothing until
// a [Server] serves it, and it may be given to one server only.
type App struct {
	name    string
	prefix  string
	ingress *Deployment
}

// AppOption changes an [App] as it is built.
type AppOption struct{ apply func(*App) }

// WithRoutePrefix sets the path under which an app is reached; the default is
// "/". A prefix matches whole path segments: "/api" matches /api and /api/x,
// not /apix. Where several apps match, the longest prefix wins. The app sees
// paths without the prefix, and "/" where nothing is left.
//
// A prefix begins with "/" and, but for "/" itself, does not end with one. It
// has no wildcards, and not the form /-/..., which is the proxy's own.
func WithRoutePrefix(prefix string) AppOption {
	return AppOption{func(a *App) { a.prefix = prefix }}
}

// NewApp builds an application. Names are made of letters, digits, "-", "_" and
// "."; they stand in spans, logs and file names. Faults are reported by [New],
// together.
func NewApp(name string, ingress *Deployment, opts ...AppOption) *App {
	a := &App{name: name, prefix: "/", ingress: ingress}
	for _, o := range opts {
		o.apply(a)
	}
	return a
}

// check returns every fault of the app and its deployment.
func (a *App) check() error {
	var faults []error
	if !validName(a.name) {
		faults = append(faults, fmt.Errorf("name %q: want 1 to %d letters, digits, '-', '_' or '.'", a.name, maxNameLen))
	}
	if !validPrefix(a.prefix) {
		faults = append(faults, fmt.Errorf("route prefix %q: want \"/\" or a clean path such as /api, without wildcards, outside /-/", a.prefix))
	}
	if a.ingress == nil {
		faults = append(faults, errors.New("no ingress deployment"))
	} else if err := a.ingress.check(); err != nil {
		faults = append(faults, fmt.Errorf("deployment %q: %w", a.ingress.name, err))
	}
	return errors.Join(faults...)
}

// maxNameLen leaves room for app, deployment and replica in one file name.
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

func validPrefix(p string) bool {
	if !strings.HasPrefix(p, "/") || path.Clean(p) != p || strings.ContainsAny(p, "{}?#%") {
		return false
	}
	return p != "/-" && !strings.HasPrefix(p, "/-/")
}
