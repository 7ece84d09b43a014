package serving

import (
	"fmt"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/spelling"
	"github.com/servetrace/servetrace/semconv"
)

// findDeployment returns a deployment and its app by "NAME" or "APP/NAME". No app and no
// deployment may be nil.
func findDeployment(apps []*App, name string) (*App, *Deployment, error) {
	if app, name, qualified := strings.Cut(name, "/"); qualified {
		a, err := findApp(apps, app)
		if err != nil {
			return nil, nil, err
		}
		d, err := a.find(name)
		return a, d, err
	}
	var of *App
	var found *Deployment
	var names []string
	for _, a := range apps {
		for _, d := range a.deployments() {
			names = append(names, d.name)
			if d.name != name {
				continue
			}
			if found != nil {
				return nil, nil, fmt.Errorf("apps %q and %q both have a deployment %q: write APP/%s", of.name, a.name, name, name)
			}
			of, found = a, d
		}
	}
	if found == nil {
		return nil, nil, fmt.Errorf("no app has a deployment %q%s", name, meant(name, names))
	}
	return of, found, nil
}

// findApp returns the app with the name. An empty name means the only app, or the app
// "default" if there are several. It skips nil apps.
func findApp(apps []*App, name string) (*App, error) {
	if name == "" {
		if len(apps) == 1 && apps[0] != nil {
			return apps[0], nil
		}
		name = semconv.DefaultApp
	}
	names := make([]string, len(apps))
	for i, a := range apps {
		switch {
		case a == nil:
		case a.name == name:
			return a, nil
		default:
			names[i] = a.name
		}
	}
	return nil, fmt.Errorf("there is no app %q%s", name, meant(name, names))
}

// find returns the deployment of the app with the name. It skips nil deployments.
func (a *App) find(name string) (*Deployment, error) {
	all := a.deployments()
	names := make([]string, len(all))
	for i, d := range all {
		switch {
		case d == nil:
		case d.name == name:
			return d, nil
		default:
			names[i] = d.name
		}
	}
	return nil, fmt.Errorf("app %q has no deployment %q%s", a.name, name, meant(name, names))
}

// meant returns the end of an error message about an unknown name. It suggests the most
// similar of the known names, or lists all of them if none is similar.
func meant(name string, names []string) string {
	if hint := spelling.Nearest(name, names); hint != "" {
		return "; did you mean " + hint + "?"
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return "; want one of " + strings.Join(names, ", ")
}
