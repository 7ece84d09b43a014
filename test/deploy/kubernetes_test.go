package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

// manifests are the decoded documents of one file.
type manifests struct {
	deployments []appsv1.Deployment
	daemons     []appsv1.DaemonSet
	services    []corev1.Service
	budgets     []policyv1.PodDisruptionBudget
	policies    []networkingv1.NetworkPolicy
	accounts    []corev1.ServiceAccount
	roles       []rbacv1.Role
	bindings    []rbacv1.RoleBinding
	files       []corev1.ConfigMap
}

var separator = regexp.MustCompile(`(?m)^---$`)

// read decodes a file of deploy/kubernetes. A key that Kubernetes does not know is an error.
func read(t *testing.T, name string) (m manifests) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../deploy/kubernetes", name))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range separator.Split(string(text), -1) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		switch kind.APIVersion + " " + kind.Kind {
		case "apps/v1 Deployment":
			m.deployments = add(t, name, doc, m.deployments)
		case "apps/v1 DaemonSet":
			m.daemons = add(t, name, doc, m.daemons)
		case "v1 Service":
			m.services = add(t, name, doc, m.services)
		case "policy/v1 PodDisruptionBudget":
			m.budgets = add(t, name, doc, m.budgets)
		case "networking.k8s.io/v1 NetworkPolicy":
			m.policies = add(t, name, doc, m.policies)
		case "v1 ServiceAccount":
			m.accounts = add(t, name, doc, m.accounts)
		case "rbac.authorization.k8s.io/v1 Role":
			m.roles = add(t, name, doc, m.roles)
		case "rbac.authorization.k8s.io/v1 RoleBinding":
			m.bindings = add(t, name, doc, m.bindings)
		case "v1 ConfigMap":
			m.files = add(t, name, doc, m.files)
		default:
			t.Errorf("%s: the test does not know %s %s", name, kind.APIVersion, kind.Kind)
		}
	}
	return m
}

func add[T any](t *testing.T, name, doc string, list []T) []T {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(doc), &v); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return append(list, v)
}

// environment returns the variables of a container, in a pod.
func environment(c corev1.Container) func(string) string {
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	return func(name string) string { return env[name] }
}

func TestService(t *testing.T) {
	m := read(t, "service.yaml")
	if len(m.deployments) != 1 || len(m.services) != 1 || len(m.budgets) != 1 {
		t.Fatalf("%d Deployments, %d Services and %d PodDisruptionBudgets, want one of each", len(m.deployments), len(m.services), len(m.budgets))
	}
	d, service, budget := m.deployments[0], m.services[0], m.budgets[0]
	labels := d.Spec.Template.Labels
	for of, selector := range map[string]map[string]string{
		"Deployment": d.Spec.Selector.MatchLabels, "Service": service.Spec.Selector, "PodDisruptionBudget": budget.Spec.Selector.MatchLabels,
	} {
		if !maps.Equal(selector, labels) {
			t.Errorf("the %s selects %v, and the pods have %v", of, selector, labels)
		}
	}

	pod := d.Spec.Template.Spec
	app := pod.Containers[0]
	cfg, err := servetrace.ConfigFromEnv(environment(app))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	for name, addr := range map[string]string{"http": cfg.Serving.HTTPAddr, "admin": cfg.Admin.Addr} {
		if addr == "" && name == "http" {
			addr = serving.DefaultHTTPAddr
		}
		if want := "0.0.0.0:" + port(t, app, name); addr != want {
			t.Errorf("port %q is %s, and the service listens at %s", name, want, addr)
		}
	}
	stop := cfg.Serving.MinDrainingPeriod + serving.DefaultShutdownTimeout + 5*time.Second
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; cfg.Serving.MinDrainingPeriod == 0 || grace <= stop {
		t.Errorf("the pod has %v to stop, and the service needs %v with a draining period of %v", grace, stop, cfg.Serving.MinDrainingPeriod)
	}
	if probe := app.ReadinessProbe.HTTPGet; probe.Path != "/-/healthz" || probe.Port.StrVal != "http" {
		t.Errorf("readiness probe of %s at port %s", probe.Path, probe.Port.StrVal)
	}
	if target := service.Spec.Ports[0].TargetPort.StrVal; target != "http" {
		t.Errorf("the Service sends to port %q", target)
	}
	checkVolumes(t, pod)
}

// TestModel compares model.yaml with service.yaml, whose app calls it.
func TestModel(t *testing.T) {
	m, service := read(t, "model.yaml"), read(t, "service.yaml")
	if len(m.deployments) != 1 || len(m.services) != 1 || len(m.budgets) != 1 || len(m.policies) != 1 {
		t.Fatalf("%d Deployments, %d Services, %d PodDisruptionBudgets and %d NetworkPolicies, want one of each",
			len(m.deployments), len(m.services), len(m.budgets), len(m.policies))
	}
	d, policy := m.deployments[0], m.policies[0]
	labels := d.Spec.Template.Labels
	for of, selector := range map[string]map[string]string{
		"Deployment": d.Spec.Selector.MatchLabels, "Service": m.services[0].Spec.Selector,
		"PodDisruptionBudget": m.budgets[0].Spec.Selector.MatchLabels, "NetworkPolicy": policy.Spec.PodSelector.MatchLabels,
	} {
		if !maps.Equal(selector, labels) {
			t.Errorf("the %s selects %v, and the pods have %v", of, selector, labels)
		}
	}
	if caller := policy.Spec.Ingress[0].From[0].PodSelector.MatchLabels; !maps.Equal(caller, service.deployments[0].Spec.Template.Labels) {
		t.Errorf("pods with %v may call, and the app has %v", caller, service.deployments[0].Spec.Template.Labels)
	}
	for _, rule := range policy.Spec.Ingress {
		for _, p := range rule.Ports {
			port(t, d.Spec.Template.Spec.Containers[0], p.Port.StrVal)
		}
	}
	if headless := m.services[0].Spec; headless.ClusterIP != corev1.ClusterIPNone || headless.Ports[0].TargetPort.StrVal != "call" {
		t.Errorf("the Service has address %q and leads to port %q, want none and call", headless.ClusterIP, headless.Ports[0].TargetPort.StrVal)
	}

	pod, app := d.Spec.Template.Spec, service.deployments[0].Spec.Template.Spec
	cfg, err := servetrace.ConfigFromEnv(environment(pod.Containers[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
	if want := ":" + port(t, pod.Containers[0], "call"); cfg.Serving.Calls.Addr != want {
		t.Errorf("port call is %s, and the service takes calls at %s", want, cfg.Serving.Calls.Addr)
	}
	if d.Spec.MinReadySeconds < 30 {
		t.Errorf("an old pod ends %d s after a new pod is ready, want 30 for callers by DNS", d.Spec.MinReadySeconds)
	}
	if *pod.TerminationGracePeriodSeconds != *app.TerminationGracePeriodSeconds {
		t.Errorf("%d s to stop, want those of the app", *pod.TerminationGracePeriodSeconds)
	}
	checkVolumes(t, pod)
}

// TestPrometheusAdapter compares the rules of the adapter with the metrics of autoscalers, and
// with the guide.
func TestPrometheusAdapter(t *testing.T) {
	m := read(t, "prometheus-adapter.yaml")
	text := m.files[0].Data["config.yaml"]
	var config struct {
		Rules []struct{ SeriesQuery string }
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`__name__=~"([^"]+)"`).FindStringSubmatch(config.Rules[0].SeriesQuery)
	if len(name) != 2 {
		t.Fatalf("the rule asks for %s, want names of metrics", config.Rules[0].SeriesQuery)
	}
	known := regexp.MustCompile("^(?:" + name[1] + ")$")
	for of, scaler := range render(t, apart, "--autoscale", "hpa").scalers {
		for _, name := range metricsOf(scaler) {
			if !known.MatchString(name) {
				t.Errorf("the autoscaler of %s reads %s, which the rule does not have", of, name)
			}
		}
	}
	guide, err := os.ReadFile("../../docs/how-to/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for of, scaler := range render(t, apart, "--autoscale", "keda").kedas {
		for _, trigger := range scaler.Spec.Triggers {
			if address := trigger.Metadata["serverAddress"]; !strings.Contains(string(guide), "prometheus.url="+address+",prometheus.port=80\n") {
				t.Errorf("%s asks Prometheus at %s, and docs/how-to/kubernetes.md has another address for its adapter", of, address)
			}
		}
	}
	if !strings.Contains(string(guide), "\n"+text+"```\n") {
		t.Errorf("docs/how-to/kubernetes.md does not show\n%s", text)
	}
}

func TestEndpointSlices(t *testing.T) {
	m := read(t, "endpointslices.yaml")
	if len(m.accounts) != 1 || len(m.roles) != 1 || len(m.bindings) != 1 {
		t.Fatalf("%d ServiceAccounts, %d Roles and %d RoleBindings, want one of each", len(m.accounts), len(m.roles), len(m.bindings))
	}
	binding := m.bindings[0]
	if binding.RoleRef.Name != m.roles[0].Name || binding.Subjects[0].Name != m.accounts[0].Name {
		t.Errorf("role %s is bound to %s", binding.RoleRef.Name, binding.Subjects[0].Name)
	}
	rule := m.roles[0].Rules[0]
	if len(m.roles[0].Rules) != 1 || strings.Join(append(rule.Resources, rule.Verbs...), " ") != "endpointslices list watch" {
		t.Errorf("rules %v, want the least", m.roles[0].Rules)
	}
}

func TestRelay(t *testing.T) {
	m := read(t, "relay.yaml")
	if len(m.daemons) != 1 {
		t.Fatalf("%d DaemonSets, want one", len(m.daemons))
	}
	pod := m.daemons[0].Spec.Template.Spec
	if !maps.Equal(m.daemons[0].Spec.Selector.MatchLabels, m.daemons[0].Spec.Template.Labels) {
		t.Error("the DaemonSet does not select its pods")
	}
	relay := pod.Containers[0]
	if args, want := strings.Join(relay.Args, " "), "--admin 0.0.0.0:"+port(t, relay, "admin"); !strings.HasSuffix(args, want) {
		t.Errorf("arguments %q, want %q in them", args, want)
	}
	if _, err := servetrace.ConfigFromEnv(environment(relay)); err != nil {
		t.Error(err)
	}
	checkVolumes(t, pod)
}

// port returns the number of a container's named port.
func port(t *testing.T, c corev1.Container, name string) string {
	t.Helper()
	for _, p := range c.Ports {
		if p.Name == name {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	t.Errorf("container %s has no port %q", c.Name, name)
	return ""
}

// checkVolumes reports a mount of a volume that the pod does not have.
func checkVolumes(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	has := map[string]bool{}
	for _, v := range pod.Volumes {
		has[v.Name] = true
	}
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		for _, mount := range c.VolumeMounts {
			if !has[mount.Name] {
				t.Errorf("container %s mounts %q, which is no volume of the pod", c.Name, mount.Name)
			}
		}
	}
}
