//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	service   = "http://10.96.0.80"
	spansEach = 9 // of a request of describe
)

// describe are the flags of a load that calls examples/composition.
var describe = []string{"-url", service + "/describe", "-body", `{"text": "A good day. Then rain came."}`}

var (
	withBed = flag.Bool("bed", false, "build and start the bed; without it, its tests are skipped")
	keepBed = flag.Bool("keep", false, "leave the bed running at the end")

	theBed *bed
)

// TestMain also runs the processes that the bed starts from this binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == "init" || os.Args[1] == "load") {
		main()
		os.Exit(0)
	}
	flag.Parse()
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	why := cannotRun()
	if !*withBed {
		why = "without -bed (make cluster)"
	}
	if why != "" {
		fmt.Fprintln(os.Stderr, "cluster: tests are skipped:", why)
		return 0
	}
	var err error
	if theBed, err = newBed(os.Stderr); err == nil {
		if err = theBed.build(context.Background()); err == nil {
			err = theBed.up(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	code := m.Run()
	if *keepBed {
		return code
	}
	if err := theBed.down(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	return code
}

// kubectl returns the output of kubectl, and ends the test if it fails.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := theBed.kubectl(t.Context(), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// rollout waits until all pods of a Deployment are of its present form, and ready.
func rollout(t *testing.T, name string) {
	t.Helper()
	out, err := theBed.kubectl(t.Context(), "rollout", "status", "deployment/"+name, "--timeout=180s").CombinedOutput()
	if err != nil {
		t.Log(kubectl(t, "describe", "pods"))
		t.Fatalf("%v\n%s", err, out)
	}
}

// overlay adapts manifests of deploy/kubernetes to the bed. containerd 1.6 has no volumes of
// images, so that the plugins are in the image of the app.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: RESOURCES
images: [{name: registry.example/app, newName: bed.test/app}]
patches:
  - target: {kind: Deployment}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: any}
      spec:
        template:
          spec:
            containers:
              - name: app
                env:
                  - {name: SERVE_TRACING_EXPORTER_PLUGIN, value: /plugins/console}
                  - {name: SERVE_CONSOLE_OUTPUT, value: /spans/}
                resources: {requests: {cpu: 50m, memory: 64Mi}}
                volumeMounts:
                  - {$patch: delete, mountPath: /usr/local/lib/servetrace}
                  - {mountPath: /spans, name: spans}
            volumes:
              - {$patch: delete, name: plugins}
              - {name: spans, hostPath: {path: SPANS}}
  - target: {kind: Service, name: app}
    patch: |
      - {op: add, path: /spec/clusterIP, value: 10.96.0.80}
`

// fourPods is a patch.
const fourPods = `  - target: {kind: Deployment}
    patch: |
      - {op: add, path: /spec/replicas, value: 4}
`

// manifests is the folder of manifests that users get.
const manifests = "../../deploy/kubernetes/"

// deploy applies manifest files with the overlay and more patches, until the test ends.
func deploy(t *testing.T, patches string, files ...string) {
	t.Helper()
	dir := t.TempDir()
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		names = append(names, name)
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	values := strings.NewReplacer("SPANS", filepath.Join(theBed.dir, "spans"), "RESOURCES", "["+strings.Join(names, ", ")+"]")
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(values.Replace(overlay)+patches), 0o600); err != nil {
		t.Fatal(err)
	}
	apply(t, "-k", dir)
}

// apply applies manifests until the test ends.
func apply(t *testing.T, from ...string) {
	t.Helper()
	t.Log(kubectl(t, append([]string{"apply"}, from...)...))
	t.Cleanup(func() {
		if *keepBed {
			return
		}
		if out, err := theBed.kubectl(context.Background(), append([]string{"delete"}, from...)...).CombinedOutput(); err != nil {
			t.Errorf("kubectl delete: %v\n%s", err, out)
		}
	})
}

// load is a load from node 1 that runs until stop.
type load struct {
	cmd *exec.Cmd
	out bytes.Buffer
	err bytes.Buffer
}

func startLoad(t *testing.T, args ...string) *load {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args = append([]string{"load", "-for", "10m"}, args...)
	l := &load{}
	// It ends by stop alone, so that it tells what it saw.
	l.cmd = theBed.inNet(context.Background(), 1, self, args...)
	l.cmd.Stdout, l.cmd.Stderr = &l.out, &l.err
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return l
}

// stop ends the load and returns its result.
func (l *load) stop(t *testing.T) (r result) {
	t.Helper()
	if err := l.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Fatalf("load: %v\n%s", err, l.err.String())
	}
	if err := json.Unmarshal(l.out.Bytes(), &r); err != nil {
		t.Fatalf("load: %v\n%s", err, l.out.String())
	}
	return r
}

// pass lets time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ends")
	}
}

// countSpans counts the spans in the files of the console plugins.
func countSpans(t *testing.T) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(theBed.dir, "spans", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(text, []byte(`"span_id"`))
	}
	return n
}

// awaitSpans waits for this many spans, or until no more have come for five seconds, and
// returns how many there are.
func awaitSpans(t *testing.T, want int) int {
	t.Helper()
	n := countSpans(t)
	for quiet := 0; n < want && quiet < 5; quiet++ {
		pass(t, time.Second)
		if now := countSpans(t); now > n {
			n, quiet = now, 0
		}
	}
	pass(t, time.Second) // there must be no more
	return countSpans(t)
}

// awaitService waits until the Service answers, and the spans of its answers are there. The
// nodes learn of pods a little later than kubectl.
func awaitService(t *testing.T, request []string, spansEach int) {
	t.Helper()
	for {
		before := countSpans(t)
		l := startLoad(t, append([]string{"-rate", "10", "-callers", "2"}, request...)...)
		pass(t, time.Second)
		r := l.stop(t)
		awaitSpans(t, before+spansEach*r.OK)
		if r.OK > 0 && r.OK == r.Requests {
			return
		}
		t.Logf("waiting for the Service: %v", r.Errors)
	}
}

// killOne kills the process of a pod on node 2 with SIGKILL. The pod has this variable.
func killOne(t *testing.T, variable string) {
	t.Helper()
	root, err := theBed.pid(2)
	if err != nil {
		t.Fatal(err)
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, environ := range environs {
		dir := filepath.Dir(environ)
		// A process may end meanwhile, and then it is not one of the pods that run.
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		env, _ := os.ReadFile(environ)
		if string(bytes.Split(line, []byte{0})[0]) != "/app" || !bytes.Contains(env, []byte(variable+"=")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		if below(pid, root) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no pod with %s on node 2", variable)
}

// below reports whether a process descends from root.
func below(pid, root int) bool {
	for pid > 1 {
		if pid == root {
			return true
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return false
		}
		// The name of the program, in parentheses, may have spaces.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return false
		}
	}
	return false
}

// pods are the pods of a Deployment. Variable is one that no others have.
type pods struct{ deployment, variable string }

// An event is something that happens to pods under load.
type event struct {
	name string
	do   func(t *testing.T, p pods)
	args []string // of the load, beside the defaults
	// errors is how many requests may fail.
	errors int
	// lost is how many spans may be missing.
	lost int
	// more allows spans of requests that the callers have given up.
	more bool
}

var (
	noEvent        = event{name: "no event", do: func(t *testing.T, _ pods) { pass(t, 3*time.Second) }}
	rollingRestart = event{name: "rolling restart", do: restart}
	withFresh      = event{name: "rolling restart with fresh connections", do: restart, args: []string{"-fresh"}}
	scale          = event{name: "scale 4-2-6-4", do: func(t *testing.T, p pods) {
		for _, n := range []string{"2", "6", "4"} {
			kubectl(t, "scale", "deployment/"+p.deployment, "--replicas", n)
			rollout(t, p.deployment)
			pass(t, 2*time.Second)
		}
	}}
	// Each caller has one request at a time, so that a process has 16 at most. Its lost spans
	// are those of a second, and a pod has a quarter of the load.
	kill9 = event{name: "kill -9", errors: 16, lost: 9 * 100, more: true, do: func(t *testing.T, p pods) {
		killOne(t, p.variable)
		pass(t, 2*time.Second)
		rollout(t, p.deployment)
	}}
	// No caller has more than one time-out of 10 s in 12 s.
	cutOff = event{name: "a node cut off for 12 s", args: []string{"-callers", "10"}, errors: 10, more: true, do: func(t *testing.T, p pods) {
		link := func(state string) {
			if out, err := theBed.inNet(t.Context(), 0, "ip", "link", "set", "v2", state).CombinedOutput(); err != nil {
				t.Fatalf("ip: %v: %s", err, out)
			}
		}
		link("down")
		pass(t, 12*time.Second)
		link("up")
		rollout(t, p.deployment)
		pass(t, 12*time.Second)
	}}
)

func restart(t *testing.T, p pods) {
	kubectl(t, "rollout", "restart", "deployment/"+p.deployment)
	rollout(t, p.deployment)
}

// TestWholeAppPerPod has the manifest of docs/how-to/kubernetes.md under 300 requests/s.
func TestWholeAppPerPod(t *testing.T) {
	deploy(t, fourPods, manifests+"service.yaml")
	app := pods{"app", "SERVE_HTTP_HOST"}
	for _, e := range []event{noEvent, rollingRestart, withFresh, scale, kill9, cutOff} {
		t.Run(e.name, func(t *testing.T) { underLoad(t, e, app) })
	}
}

// underLoad lets an event happen under load, and checks answers and spans.
func underLoad(t *testing.T, e event, p pods) {
	rollout(t, "app")
	rollout(t, p.deployment)
	awaitService(t, describe, spansEach)
	before := countSpans(t)
	l := startLoad(t, slices.Concat(describe, []string{"-rate", "300", "-callers", "16"}, e.args)...)
	pass(t, 3*time.Second)
	e.do(t, p)
	pass(t, 4*time.Second) // pods that stop have 3 s to drain
	r := l.stop(t)
	failed := r.Requests - r.OK
	t.Logf("%d requests, %d errors %v, p50 %v, p99 %v, max %v", r.Requests, failed, r.Errors, r.P50, r.P99, r.Max)
	if failed > e.errors {
		t.Errorf("%d of %d requests failed, at most %d may: %v", failed, r.Requests, e.errors, r.Errors)
	}
	want := spansEach * r.OK
	spans := awaitSpans(t, before+want) - before
	t.Logf("%d spans for %d answers, %.4f each", spans, r.OK, float64(spans)/float64(r.OK))
	most := want
	if e.more {
		most = spansEach * r.Requests
	}
	if spans < want-e.lost || spans > most {
		t.Errorf("%d spans, want %d to %d", spans, want-e.lost, most)
	}
}

// apart has Sentiment and Tokenizer in pods of their own, at TARGET.
const apart = `  - target: {kind: Deployment, name: model}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: model}
      spec:
        template:
          spec:
            containers:
              - name: app
                env: [{name: SERVE_DEPLOYMENTS, value: "Sentiment,Tokenizer"}]
  - target: {kind: Deployment, name: app}
    patch: |
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: app}
      spec:
        template:
          spec:
            containers:
              - name: app
                env: [{name: SERVE_REMOTE, value: "Sentiment=TARGET,Tokenizer=TARGET"}]
`

// cache lets an old pod stay until a new pod has been in the list for this time.
func cache(seconds string) string {
	return `  - target: {kind: Deployment, name: model}
    patch: |
      - {op: replace, path: /spec/minReadySeconds, value: ` + seconds + `}
`
}

// account lets the app's pods read EndpointSlices.
const account = `  - target: {kind: Deployment, name: app}
    patch: |
      - {op: add, path: /spec/template/spec/serviceAccountName, value: app}
      - {op: replace, path: /spec/template/spec/automountServiceAccountToken, value: true}
`

// TestDeploymentsApart has two of four deployments in other pods than the ingress, which
// finds them by their EndpointSlices.
func TestDeploymentsApart(t *testing.T) {
	patches := strings.ReplaceAll(apart, "TARGET", "k8s:///model:call")
	deploy(t, fourPods+account+cache("0")+patches, manifests+"service.yaml", manifests+"model.yaml", manifests+"endpointslices.yaml")
	for _, p := range []pods{{"app", "SERVE_REMOTE"}, {"model", "SERVE_CALL_ADDR"}} {
		t.Run(p.deployment, func(t *testing.T) {
			for _, e := range []event{noEvent, rollingRestart, scale, kill9, cutOff} {
				t.Run(e.name, func(t *testing.T) { underLoad(t, e, p) })
			}
		})
	}
}

// TestDeploymentsApartByDNS is TestDeploymentsApart with the name of the headless Service,
// whose list of pods may be 10 s old.
func TestDeploymentsApartByDNS(t *testing.T) {
	patches := strings.ReplaceAll(apart, "TARGET", "dns:///model.default.svc:9100")
	deploy(t, fourPods+cache("10")+patches, manifests+"service.yaml", manifests+"model.yaml")
	for _, e := range []event{noEvent, rollingRestart, scale, kill9, cutOff} {
		t.Run(e.name, func(t *testing.T) { underLoad(t, e, pods{"model", "SERVE_CALL_ADDR"}) })
	}
}
