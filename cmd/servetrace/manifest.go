package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/deploy/helm"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/servicefile"
	"github.com/servetrace/servetrace/serving"
)

// manifest is the content of a service file that render needs.
type manifest struct {
	cfg servetrace.Config
	// file is the text of the service file, without the keys that differ between the
	// Deployments of Kubernetes.
	file                          string
	httpPort, adminPort, grpcPort int
	graceSeconds                  int
	// groups are the remote deployments by Service, sorted by the Service's name.
	groups []group
	// written are the settings that name folders to which a service writes.
	written []string
}

// group is the deployments of a service that run in the pods of one Kubernetes Service.
type group struct {
	namespace, service string
	port               int      // port of the Service
	slices             bool     // callers find the pods by EndpointSlices
	dns                bool     // callers find the pods by DNS
	runs               []string // names of the deployments
}

// perPod are the keys below call_options that are left out of the common service file. The
// pods get their values by variables, because they differ between Deployments.
var perPod = []string{"remote", "deployments", "addr"}

// readManifest reads a service file as a service in a pod reads it, without this
// environment's settings.
func readManifest(path string, getenv func(string) string) (*manifest, error) {
	inPod := func(name string) string {
		switch {
		case name == "KUBERNETES_SERVICE_HOST":
			return "10.0.0.1"
		case strings.HasPrefix(name, "SERVE_"), strings.HasPrefix(name, "OTEL_"):
			return ""
		}
		return getenv(name)
	}
	cfg, err := servetrace.LoadConfigFile(path, inPod)
	if err != nil {
		return nil, err
	}
	m := &manifest{cfg: cfg}
	data, err := servicefile.Read(path)
	if err != nil {
		return nil, err
	}
	if m.file, err = withoutPerPod(data); err != nil {
		return nil, err
	}
	if m.written, err = writtenPaths(cfg, data); err != nil {
		return nil, err
	}
	var errs [3]error
	m.httpPort, errs[0] = portOf(cmp.Or(cfg.Serving.HTTPAddr, serving.DefaultHTTPAddr), 8000)
	m.adminPort, errs[1] = portOf(cfg.Admin.Addr, 8001)
	m.grpcPort, errs[2] = portOf(cfg.Serving.GRPC.Addr, 0)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	stop := cfg.Serving.MinDrainingPeriod + cmp.Or(cfg.Serving.ShutdownTimeout, serving.DefaultShutdownTimeout) + cmp.Or(cfg.Host.StopTimeout, host.DefaultStopTimeout)
	m.graceSeconds = int((stop + 12*time.Second) / time.Second)
	return m, m.readGroups()
}

// writtenPaths returns the settings that name folders to which a service or its plugins
// write, as "KEY: VALUE". data is the service file.
func writtenPaths(cfg servetrace.Config, data []byte) (list []string, err error) {
	add := func(key, folder string) {
		if strings.Contains(folder, "/") || folder == "." {
			list = append(list, key+": "+folder)
		}
	}
	add("tracing_config.spool_dir", cfg.Host.SpoolDir)
	add("tracing_config.crash_dir", cfg.Host.CrashDir)
	if cfg.SpanFolder != "" {
		return append(list, "tracing_config.enabled without exporter_plugin: span files"), nil
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Host.PluginConfigs)) {
		document, err := cfg.Host.PluginConfigs[name].Pick(data)
		if err != nil {
			return nil, err
		}
		var config struct{ Exporter struct{ Output string } }
		if yaml.Unmarshal(document, &config) != nil {
			continue // the document is not a configuration of the console plugin
		}
		add("tracing_config.plugins."+name+".config.exporter.output", config.Exporter.Output)
	}
	return list, nil
}

// withoutPerPod returns the text of a service file without the keys of perPod.
func withoutPerPod(data []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return string(data), err
	}
	root := doc.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		options := root.Content[i+1]
		if root.Content[i].Value != "call_options" || options.Kind != yaml.MappingNode {
			continue
		}
		for k := len(options.Content) - 2; k >= 0; k -= 2 {
			if slices.Contains(perPod, options.Content[k].Value) {
				options.Content = slices.Delete(options.Content, k, k+2)
			}
		}
		text, err := yaml.Marshal(&doc)
		return string(text), err
	}
	return string(data), nil
}

// portOf returns the port of an address. It returns the argument otherwise if the address is
// empty, or if its port is 0.
func portOf(addr string, otherwise int) (int, error) {
	if addr == "" {
		return otherwise, nil
	}
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	port, err := strconv.Atoi(text)
	return cmp.Or(port, otherwise), err
}

// callPort is the number of the port that a target names "call".
const callPort = "9100"

// serviceTarget matches the targets that name a Kubernetes Service: dns:///SERVICE…:PORT and
// k8s:///SERVICE:PORT, with or without a namespace.
var serviceTarget = regexp.MustCompile(`^(?:dns:///([a-z0-9-]+)(?:\.([a-z0-9-]+)(?:\.svc[a-z0-9.-]*)?)?|k8s:///(?:([a-z0-9-]+)/)?([a-z0-9-]+)):(\d+|call)$`)

// readGroups sets m.groups. Deployments with the same Service in their targets are one group.
func (m *manifest) readGroups() error {
	groups := map[string]*group{}
	for _, name := range slices.Sorted(maps.Keys(m.cfg.Serving.Calls.Remote)) {
		text := m.cfg.Serving.Calls.Remote[name]
		if strings.HasPrefix(text, "static:///") {
			continue
		}
		parts := serviceTarget.FindStringSubmatch(text)
		if parts == nil || parts[5] == "call" && parts[4] == "" {
			return fmt.Errorf("call_options.remote: deployment %q: target %q names no Service: want dns:///SERVICE.NAMESPACE.svc:PORT or k8s:///NAMESPACE/SERVICE:PORT, with a number or \"call\" as the port", name, text)
		}
		port, err := strconv.Atoi(strings.Replace(parts[5], "call", callPort, 1))
		if err != nil {
			return fmt.Errorf("call_options.remote: deployment %q: %w", name, err)
		}
		g := group{namespace: parts[2] + parts[3], service: parts[1] + parts[4], port: port, slices: parts[4] != "", dns: parts[1] != ""}
		old := groups[g.service]
		if old == nil {
			old = &g
			groups[g.service] = old
		}
		if old.port != port || old.namespace != g.namespace {
			return fmt.Errorf("call_options.remote: Service %q has two namespaces or ports: want one of each", g.service)
		}
		old.slices, old.dns = old.slices || g.slices, old.dns || g.dns
		old.runs = append(old.runs, name)
	}
	for _, service := range slices.Sorted(maps.Keys(groups)) {
		m.groups = append(m.groups, *groups[service])
	}
	return nil
}

// place sets the namespace of the release if it has none. It returns an error if a Service
// has the release's name or another namespace.
func (m *manifest) place(release *helm.Release) error {
	for _, g := range m.groups {
		if g.service == release.Name {
			return fmt.Errorf("the Service %q is that of the pods that take requests: name another by --name, or in call_options.remote", g.service)
		}
		release.Namespace = cmp.Or(release.Namespace, g.namespace)
		if g.namespace != "" && g.namespace != release.Namespace {
			return fmt.Errorf("the Service %q is in namespace %q, and the other pods are in %q: want one namespace", g.service, g.namespace, release.Namespace)
		}
	}
	release.Namespace = cmp.Or(release.Namespace, "default")
	return nil
}

// usesSlices reports whether callers find the pods of any Service by EndpointSlices.
func (m *manifest) usesSlices() bool {
	return slices.ContainsFunc(m.groups, func(g group) bool { return g.slices })
}

// targets returns the targets of the remote deployments that are not among runs, by name.
func (m *manifest) targets(runs []string) map[string]string {
	list := map[string]string{}
	for name, text := range m.cfg.Serving.Calls.Remote {
		if !slices.Contains(runs, name) {
			list[name] = text
		}
	}
	return list
}

// ongoing returns the number of requests in a pod that an autoscaler aims at: half of the
// requests that a pod can run at a time. The deployment among runs that can run the most
// decides. Without runs, these are the deployments that are not remote.
func (m *manifest) ongoing(runs ...string) int {
	const replicas, each = 1, 5 // the defaults for a deployment
	most := 0
	for _, app := range m.cfg.Serving.Apps {
		for _, d := range app.Deployments {
			_, remote := m.cfg.Serving.Calls.Remote[d.Name]
			if slices.Contains(runs, d.Name) || slices.Contains(runs, app.Name+"/"+d.Name) || len(runs) == 0 && !remote {
				most = max(most, orDefault(d.NumReplicas, replicas)*orDefault(d.MaxOngoingRequests, each))
			}
		}
	}
	return (cmp.Or(most, replicas*each) + 1) / 2
}

// orDefault returns the number, or otherwise if it is not set.
func orDefault(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}
