package deploy

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/serving"
)

// rendered are the manifests of "servetrace render", by name.
type rendered struct {
	deployments map[string]appsv1.Deployment
	services    map[string]corev1.Service
	budgets     map[string]policyv1.PodDisruptionBudget
	policies    map[string]networkingv1.NetworkPolicy
	scalers     map[string]autoscalingv2.HorizontalPodAutoscaler
	kedas       map[string]scaledObject
	accounts    map[string]corev1.ServiceAccount
	roles       map[string]rbacv1.Role
	bindings    map[string]rbacv1.RoleBinding
	files       map[string]corev1.ConfigMap
}

// scaledObject has the fields of KEDA's ScaledObject that the chart sets.
type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ScaleTargetRef                                   struct{ Name string }
		MinReplicaCount, MaxReplicaCount, CooldownPeriod int32
		Triggers                                         []struct {
			Type     string
			Metadata map[string]string
		}
	}
}

// render runs the command with a service file.
func render(t *testing.T, file string, flags ...string) rendered {
	t.Helper()
	dir := t.TempDir()
	path, bin := filepath.Join(dir, "serve.yaml"), filepath.Join(dir, "servetrace")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", bin, "./cmd/servetrace")
	build.Dir = "../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var stderr bytes.Buffer
	cmd := exec.Command(bin, append([]string{"render", path}, flags...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	m := rendered{
		map[string]appsv1.Deployment{}, map[string]corev1.Service{}, map[string]policyv1.PodDisruptionBudget{},
		map[string]networkingv1.NetworkPolicy{}, map[string]autoscalingv2.HorizontalPodAutoscaler{}, map[string]scaledObject{},
		map[string]corev1.ServiceAccount{}, map[string]rbacv1.Role{}, map[string]rbacv1.RoleBinding{}, map[string]corev1.ConfigMap{},
	}
	for _, doc := range separator.Split(string(out), -1) {
		if strings.TrimSpace(doc) != "" {
			m.add(t, doc)
		}
	}
	return m
}

// add decodes a document. A key that Kubernetes does not know is an error.
func (m rendered) add(t *testing.T, doc string) {
	t.Helper()
	var kind metav1.PartialObjectMetadata
	if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
		t.Fatal(err)
	}
	switch kind.APIVersion + " " + kind.Kind {
	case "apps/v1 Deployment":
		strict(t, doc, kind.Name, m.deployments)
	case "v1 Service":
		strict(t, doc, kind.Name, m.services)
	case "policy/v1 PodDisruptionBudget":
		strict(t, doc, kind.Name, m.budgets)
	case "networking.k8s.io/v1 NetworkPolicy":
		strict(t, doc, kind.Name, m.policies)
	case "autoscaling/v2 HorizontalPodAutoscaler":
		strict(t, doc, kind.Name, m.scalers)
	case "keda.sh/v1alpha1 ScaledObject":
		strict(t, doc, kind.Name, m.kedas)
	case "v1 ServiceAccount":
		strict(t, doc, kind.Name, m.accounts)
	case "rbac.authorization.k8s.io/v1 Role":
		strict(t, doc, kind.Name, m.roles)
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		strict(t, doc, kind.Name, m.bindings)
	case "v1 ConfigMap":
		strict(t, doc, kind.Name, m.files)
	default:
		t.Errorf("the test does not know %s %s", kind.APIVersion, kind.Kind)
	}
}

func strict[T any](t *testing.T, doc, name string, to map[string]T) {
	t.Helper()
	var v T
	if err := yaml.UnmarshalStrict([]byte(doc), &v); err != nil {
		t.Errorf("%v in\n%s", err, doc)
	}
	if _, twice := to[name]; twice {
		t.Errorf("two of %T are named %s", v, name)
	}
	to[name] = v
}

// apart has two deployments apart, one for each kind of discovery.
const apart = `
http_options: {port: 8080, min_draining_period_s: 5}
grpc_options: {port: 9001}
call_options:
  remote:
    - Model=dns:///model.shop.svc:9100
    - Other=dns:///model.shop.svc:9100
    - Ranker=k8s:///shop/ranker:call
    - Far=static:///192.0.2.7:9100
  max_streams: 100
applications:
  - deployments:
      - {name: Model, num_replicas: 2, max_ongoing_requests: 8}
`

// TestRenderedPodsCallEachOther reads the settings of each pod as the service would, and
// compares them with the Services.
func TestRenderedPodsCallEachOther(t *testing.T) {
	m := render(t, apart, "--name", "shop", "--autoscale", "hpa", "--plugins-image", "registry.example/plugins:1")
	runs := map[string][]string{"shop": nil, "model": {"Model", "Other"}, "ranker": {"Ranker"}}
	const ongoing = "serve_num_ongoing_"
	metrics := map[string][]string{
		"shop":   {ongoing + "http_requests", ongoing + "grpc_requests"},
		"model":  {ongoing + "requests_at_replicas", ongoing + "requests_at_replicas"},
		"ranker": {ongoing + "requests_at_replicas"},
	}
	for name, deployments := range runs {
		d, ok := m.deployments[name]
		if !ok {
			t.Fatalf("no Deployment %s in %v", name, slices.Sorted(maps.Keys(m.deployments)))
		}
		cfg := podConfig(t, m, d)
		if !slices.Equal(cfg.Serving.Calls.Deployments, deployments) {
			t.Errorf("%s runs %q, want %q", name, cfg.Serving.Calls.Deployments, deployments)
		}
		for _, remote := range []string{"Model", "Other", "Ranker", "Far"} {
			if got := cfg.Serving.Calls.Remote[remote] != ""; got == slices.Contains(deployments, remote) {
				t.Errorf("%s has a target of %s: %v", name, remote, got)
			}
		}
		checkPods(t, m, name, d)
		if calls := deployments != nil; calls {
			checkCalls(t, m, name, cfg.Serving.Calls.Addr)
		}
		if scaler := m.scalers[name]; scaler.Spec.ScaleTargetRef.Name != name || *scaler.Spec.MinReplicas != 2 || scaler.Spec.MaxReplicas != 10 || !slices.Equal(metricsOf(scaler), metrics[name]) {
			t.Errorf("%s has the autoscaler %+v", name, scaler.Spec)
		}
	}
	if got := m.scalers["model"].Spec.Metrics[0].Pods.Target.AverageValue.Value(); got != 8 {
		t.Errorf("the autoscaler of Model aims at %d requests in a pod, want half of 2 replicas with 8", got)
	}
	for name, want := range map[string]int32{"shop": 0, "model": 30, "ranker": 0} {
		if got := m.deployments[name].Spec.MinReadySeconds; got != want {
			t.Errorf("pods of %s run for %d s before an old pod ends, want %d: 30 for callers by DNS", name, got, want)
		}
	}
	role := m.roles["shop"]
	if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Resources, []string{"endpointslices"}) || !slices.Equal(role.Rules[0].Verbs, []string{"list", "watch"}) {
		t.Errorf("the role has %+v, want list and watch of EndpointSlices alone", role.Rules)
	}
	if b := m.bindings["shop"]; b.RoleRef.Name != role.Name || b.Subjects[0].Name != m.accounts["shop"].Name || b.Subjects[0].Namespace != "shop" {
		t.Errorf("the role is bound to %+v", b)
	}
}

// metricsOf returns the names of the metrics that an autoscaler reads.
func metricsOf(scaler autoscalingv2.HorizontalPodAutoscaler) (names []string) {
	for _, metric := range scaler.Spec.Metrics {
		names = append(names, metric.Pods.Metric.Name)
	}
	return names
}

// TestRenderedWholeApp renders a file without remote deployments.
func TestRenderedWholeApp(t *testing.T) {
	m := render(t, "grpc_options: {port: 9001}\n", "--autoscale", "keda", "--replicas", "3")
	if len(m.deployments) != 1 || len(m.services) != 1 || len(m.policies)+len(m.roles)+len(m.accounts) > 0 {
		t.Errorf("%+v", m)
	}
	d := m.deployments["app"]
	checkPods(t, m, "app", d)
	cfg := podConfig(t, m, d)
	if cfg.Serving.Calls.Addr != "" || cfg.Serving.GRPC.Addr != "0.0.0.0:9001" || *d.Spec.Template.Spec.AutomountServiceAccountToken {
		t.Errorf("calls at %q, gRPC at %q, with an account: %v", cfg.Serving.Calls.Addr, cfg.Serving.GRPC.Addr, *d.Spec.Template.Spec.AutomountServiceAccountToken)
	}
	keda := m.kedas["app"].Spec
	if keda.ScaleTargetRef.Name != "app" || keda.MinReplicaCount != 3 || len(keda.Triggers) != 2 {
		t.Fatalf("%+v", keda)
	}
	for i, protocol := range []string{"http", "grpc"} {
		query := "sum(serve_num_ongoing_" + protocol + `_requests{namespace="default", pod=~"app-[a-z0-9]*-?[a-z0-9]{5}"})`
		if trigger := keda.Triggers[i].Metadata; trigger["query"] != query || trigger["threshold"] != "3" {
			t.Errorf("trigger %v, want the query %s and the threshold 3", trigger, query)
		}
	}
}

// podConfig returns the configuration of a service in the pods of a Deployment.
func podConfig(t *testing.T, m rendered, d appsv1.Deployment) servetrace.Config {
	t.Helper()
	pod := d.Spec.Template.Spec
	getenv := environment(pod.Containers[0])
	volume := pod.Volumes[len(pod.Volumes)-1]
	path := filepath.Join(t.TempDir(), "service.yaml")
	if err := os.WriteFile(path, []byte(m.files[volume.ConfigMap.Name].Data[filepath.Base(getenv("SERVE_CONFIG"))]), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := servetrace.LoadConfigFile(path, getenv)
	if err != nil {
		t.Fatalf("%s: %v", d.Name, err)
	}
	if err := cfg.Validate(); err != nil {
		t.Errorf("%s: %v", d.Name, err)
	}
	stop := cfg.Serving.MinDrainingPeriod + serving.DefaultShutdownTimeout + 5*time.Second
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace <= stop {
		t.Errorf("%s has %v to stop, and needs %v", d.Name, grace, stop)
	}
	for name, addr := range map[string]string{"http": cfg.Serving.HTTPAddr, "admin": cfg.Admin.Addr} {
		if name == "http" && cfg.Serving.Calls.Addr != "" {
			continue // for the probe alone
		}
		if want := "0.0.0.0:" + port(t, pod.Containers[0], name); addr != want {
			t.Errorf("%s: port %q is %s, and the service listens at %s", d.Name, name, want, addr)
		}
	}
	return cfg
}

// checkPods compares the selectors with the labels of the pods.
func checkPods(t *testing.T, m rendered, name string, d appsv1.Deployment) {
	t.Helper()
	labels := d.Spec.Template.Labels
	for of, selector := range map[string]map[string]string{
		"Deployment": d.Spec.Selector.MatchLabels, "Service": m.services[name].Spec.Selector, "PodDisruptionBudget": m.budgets[name].Spec.Selector.MatchLabels,
	} {
		if !maps.Equal(selector, labels) {
			t.Errorf("%s: the %s selects %v, and the pods have %v", name, of, selector, labels)
		}
	}
	checkVolumes(t, d.Spec.Template.Spec)
}

// checkCalls compares the headless Service and the NetworkPolicy with the address at which
// the pods take calls.
func checkCalls(t *testing.T, m rendered, name, addr string) {
	t.Helper()
	service, policy := m.services[name], m.policies[name]
	pod := m.deployments[name].Spec.Template
	if at := service.Spec.Ports[0]; service.Spec.ClusterIP != corev1.ClusterIPNone || addr != ":"+strconv.Itoa(int(at.Port)) || at.TargetPort.StrVal != "call" || addr != ":"+port(t, pod.Spec.Containers[0], "call") {
		t.Errorf("the Service %s has %+v, and the pods take calls at %s", name, service.Spec, addr)
	}
	rule := policy.Spec.Ingress[0]
	if len(rule.From) != 1 || rule.Ports[0].Port.StrVal != "call" || !maps.Equal(policy.Spec.PodSelector.MatchLabels, pod.Labels) {
		t.Fatalf("the policy of %s is %+v", name, policy.Spec)
	}
	for _, caller := range m.deployments {
		for key, value := range rule.From[0].PodSelector.MatchLabels {
			if caller.Spec.Template.Labels[key] != value {
				t.Errorf("the policy of %s lets pods with %s=%s call, and %s has %v", name, key, value, caller.Name, caller.Spec.Template.Labels)
			}
		}
	}
}
