package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/deploy/helm"
)

const renderLong = `Print the Kubernetes manifests of a service with its service file: Deployment, Service
and PodDisruptionBudget of the pods that take requests, and of the pods of each target
in call_options.remote. A NetworkPolicy lets only the pods of the service call those.

A target dns:///SERVICE.NAMESPACE.svc:PORT or k8s:///NAMESPACE/SERVICE:PORT names its
Service. Pods of a static target are not printed.

An autoscaler aims at half of the requests that a pod runs at a time: num_replicas times
max_ongoing_requests of the file, by default 1 and 5. It does not see numbers in the
code. The environment is not read, except for references in the file.

The root file system of the pods is read-only: settings with a folder to write to cause
a warning.`

const renderExample = `  servetrace render serve.yaml --name shop --image registry.example/shop:1 | kubectl apply -f -`

// rendering holds the flags of render.
type rendering struct {
	release             helm.Release
	image, pluginsImage string
	autoscale           string
	prometheus          string // address of Prometheus; empty: the default of the chart
	replicas, most      int    // number of pods, and the largest number with autoscalers
	values              bool
}

func newRender(s settings) *cobra.Command {
	var r rendering
	cmd := &cobra.Command{
		Use:     "render FILE",
		Short:   "Print the Kubernetes manifests of a service",
		Long:    renderLong,
		Example: renderExample,
		Args:    oneArg("FILE"),
		RunE: func(cmd *cobra.Command, list []string) error {
			if err := r.check(); err != nil {
				return usageError{err}
			}
			service, err := readManifest(list[0], s.getenv)
			if err != nil {
				return usageError{err}
			}
			if err := service.place(&r.release); err != nil {
				return usageError{err}
			}
			for _, text := range service.written {
				cmd.PrintErrf("warning: %s is below the root file system, which is read-only in the pods: mount a volume there\n", text)
			}
			values := r.valuesOf(service)
			if !r.values {
				return helm.Render(cmd.OutOrStdout(), r.release, values)
			}
			text, err := yaml.Marshal(values)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.release.Name, "name", "app", "name of the service, its Deployment and its Service")
	flags.StringVar(&r.release.Namespace, "namespace", "", "namespace (default that of the targets, or \"default\")")
	flags.StringVar(&r.image, "image", "registry.example/app:1", "image of the service")
	flags.StringVar(&r.pluginsImage, "plugins-image", "", "image with the folder /plugins, for an image volume")
	flags.StringVar(&r.autoscale, "autoscale", "", "autoscalers to print: `hpa|keda`")
	flags.StringVar(&r.prometheus, "prometheus", "", "with --autoscale keda, the `ADDRESS` of Prometheus (default http://prometheus-server.monitoring.svc)")
	flags.IntVar(&r.replicas, "replicas", 2, "pods of each Deployment; with autoscalers, the least")
	flags.IntVar(&r.most, "max-replicas", 10, "with autoscalers, the most pods of each Deployment")
	flags.BoolVar(&r.values, "values", false, "print the values for the Helm chart instead")
	return cmd
}

// label matches the names that Kubernetes allows for Services and namespaces.
var label = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (r *rendering) check() error {
	for flag, name := range map[string]string{"name": r.release.Name, "namespace": cmp.Or(r.release.Namespace, "default")} {
		if !label.MatchString(name) {
			return fmt.Errorf("--%s %q: want lower-case letters, digits and dashes, such as shop-2", flag, name)
		}
	}
	if r.replicas < 1 || r.most < r.replicas {
		return fmt.Errorf("--replicas %d, --max-replicas %d: want at least 1, and no fewer at most than at least", r.replicas, r.most)
	}
	if r.prometheus != "" && r.autoscale != "keda" {
		return fmt.Errorf("--prometheus %q: only the autoscalers of KEDA have it: add --autoscale keda", r.prometheus)
	}
	if r.prometheus != "" && !strings.HasPrefix(r.prometheus, "http://") && !strings.HasPrefix(r.prometheus, "https://") {
		return fmt.Errorf("--prometheus %q: want an address such as http://prometheus-server.monitoring.svc", r.prometheus)
	}
	return nil
}

// dnsCacheSeconds is the longest time, in the usual configurations of clusters, that DNS
// caches keep the addresses of a headless Service.
const dnsCacheSeconds = 30

// valuesOf returns the values of the Helm chart for a service.
func (r *rendering) valuesOf(m *manifest) helm.Values {
	pods := []helm.Values{r.pods(r.release.Name, m.targets(nil), m.ongoing())}
	pods[0]["ingress"] = true
	for _, g := range m.groups {
		p := r.pods(g.service, m.targets(g.runs), m.ongoing(g.runs...))
		p["port"], p["runs"] = g.port, g.runs
		if g.dns {
			p["minReadySeconds"] = dnsCacheSeconds
		}
		pods = append(pods, p)
	}
	autoscaling := helm.Values{"by": r.autoscale}
	if r.prometheus != "" {
		autoscaling["prometheus"] = r.prometheus
	}
	return helm.Values{
		"image": r.image, "pluginsImage": r.pluginsImage, "serviceFile": m.file,
		"httpPort": m.httpPort, "adminPort": m.adminPort, "grpcPort": m.grpcPort,
		"terminationGracePeriodSeconds": m.graceSeconds,
		"autoscaling":                   autoscaling,
		"endpointSlices":                m.usesSlices(),
		"deployments":                   pods,
	}
}

// pods returns the values of the Helm chart for one Deployment. ongoing is the number of
// requests in a pod that an autoscaler aims at.
func (r *rendering) pods(name string, remote map[string]string, ongoing int) helm.Values {
	return helm.Values{
		"name": name, "ingress": false, "port": 0, "runs": []string{}, "remote": remote,
		"minReadySeconds": 0, "replicas": r.replicas, "maxReplicas": r.most, "ongoing": cmp.Or(ongoing, 1),
	}
}
