package serving

import (
	"errors"
	"log/slog"

	"github.com/servetrace/servetrace/serving/internal/discovery"
)

// place describes where a deployment runs. The zero place means this process.
type place struct {
	target string           // address of the other processes that run the deployment; empty if there is none
	source discovery.Source // finds these processes; set if target is set
	absent bool             // this process neither runs nor calls the deployment
}

// places returns the place of each deployment that this process does not run. The error
// joins all faults.
func (c CallConfig) places(apps []*App, log *slog.Logger) (map[*Deployment]place, error) {
	list := map[*Deployment]place{}
	var faults faults
	for name, target := range c.Remote {
		a, d, err := findDeployment(apps, name)
		if err != nil {
			faults.add("%s: %w", EnvRemote, err)
			continue
		}
		source, err := discovery.Parse(target, discovery.Config{Log: log.With("app", a.name, "deployment", d.name), KubernetesAPI: c.KubernetesAPI})
		if err != nil {
			faults.add("%s: deployment %q: %w", EnvRemote, name, err)
		}
		if d == a.ingress {
			faults.add("%s: deployment %q is the ingress of app %q: its requests arrive here and cannot go on to another process; "+
				"to run it elsewhere only, leave it out of %s", EnvRemote, name, a.name, EnvDeployments)
		}
		list[d] = place{target: target, source: source}
	}
	if len(c.Deployments) == 0 {
		return list, errors.Join(faults...)
	}
	here := map[*Deployment]bool{}
	for _, name := range c.Deployments {
		_, d, err := findDeployment(apps, name)
		if err != nil {
			faults.add("%s: %w", EnvDeployments, err)
			continue
		}
		if list[d].target != "" {
			faults.add("deployment %q is in %s and in %s: want one of them", name, EnvDeployments, EnvRemote)
		}
		here[d] = true
	}
	for _, a := range apps {
		for _, d := range a.deployments() {
			if !here[d] && list[d].target == "" {
				list[d] = place{absent: true}
			}
		}
	}
	return list, errors.Join(faults...)
}
