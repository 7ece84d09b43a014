//go:build linux

package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// nodes are the machines with pods. Machine 0 is the control plane.
var nodes = []int{1, 2}

const (
	token = "cluster" // of the administrator
	// readyTimeout bounds the wait for the API and for the nodes.
	readyTimeout = 3 * time.Minute
)

// A bed is the cluster of this user on this machine. There is one at a time.
type bed struct {
	module string // folder test/cluster
	cache  string
	dir    string // state of the running bed, in the cache
	log    io.Writer
	begin  time.Time

	// Set by build.
	kube       string // the binary
	prometheus string // the binary
	debian     string // the folder of the unpacked packages
	images     map[string]string
}

// newBed returns the bed in the cache folder of the user.
func newBed(log io.Writer) (*bed, error) {
	module, err := moduleDir()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	if cache, err = filepath.EvalSymlinks(cache); err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "servetrace", "cluster")
	for _, covered := range []string{"/run/", "/var/"} {
		// A node has file systems of its own there.
		if strings.HasPrefix(cache, covered) {
			return nil, fmt.Errorf("the cache folder %s is below %s: set XDG_CACHE_HOME to another", cache, covered)
		}
	}
	return &bed{module: module, cache: cache, dir: filepath.Join(cache, "run"), log: log, begin: time.Now()}, os.MkdirAll(cache, 0o755)
}

// say writes a line about progress.
func (b *bed) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.log, "cluster: %6.1f s  %s\n", time.Since(b.begin).Seconds(), fmt.Sprintf(format, args...))
}

// kubeconfig is the path of the administrator's file.
func (b *bed) kubeconfig() string { return filepath.Join(b.dir, "kubeconfig") }

// up starts the machines and waits until the nodes are ready. A bed that runs is stopped
// first.
func (b *bed) up(ctx context.Context) error {
	if err := b.down(); err != nil {
		return err
	}
	if err := b.writeFiles(); err != nil {
		return err
	}
	specs := []machine{b.controlPlane()}
	for _, i := range nodes {
		specs = append(specs, b.node(i))
	}
	var starts []io.Closer
	for i, spec := range specs {
		start, err := b.startMachine(i, spec)
		if err != nil {
			return err
		}
		starts = append(starts, start)
	}
	if err := b.connect(ctx); err != nil {
		return err
	}
	for _, start := range starts {
		if err := start.Close(); err != nil {
			return err
		}
	}
	b.say("machines run, logs are in %s", b.dir)
	if err := b.await(ctx, "the API", func() (bool, string) {
		out, err := b.kubectl(ctx, "get", "--raw", "/readyz").CombinedOutput()
		return err == nil, string(out)
	}); err != nil {
		return err
	}
	if err := b.importImages(ctx); err != nil {
		return err
	}
	if err := b.await(ctx, "the nodes", func() (bool, string) {
		out, _ := b.kubectl(ctx, "get", "nodes", "--no-headers").CombinedOutput()
		return strings.Count(string(out), " Ready ") == len(nodes), string(out)
	}); err != nil {
		return err
	}
	if out, err := b.kubectl(ctx, "apply", "-f", filepath.Join(b.module, "coredns", "coredns.yaml")).CombinedOutput(); err != nil {
		return fmt.Errorf("DNS: %w: %s", err, out)
	}
	return b.await(ctx, "DNS", func() (bool, string) {
		out, err := b.kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=1s").CombinedOutput()
		return err == nil, string(out)
	})
}

// await asks every 300 ms whether something is ready. An error has the last answer.
func (b *bed) await(ctx context.Context, what string, ready func() (bool, string)) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for {
		ok, answer := ready()
		if ok {
			b.say("ready: %s", what)
			return nil
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: not ready after %s: %s\nthe logs are in %s", what, readyTimeout, strings.TrimSpace(answer), b.dir)
		}
	}
}

// writeFiles writes credentials, and folders that the machines share.
func (b *bed) writeFiles() error {
	if err := os.MkdirAll(filepath.Join(b.dir, "spans"), 0o755); err != nil {
		return err
	}
	// The user of the pods writes there.
	if err := os.Chmod(filepath.Join(b.dir, "spans"), 0o777); err != nil {
		return err
	}
	// For kubectl, which may be called without a build.
	if err := os.Symlink(b.kube, filepath.Join(b.dir, "kube")); err != nil {
		return err
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	// The API shows it to the servers of its extensions, which know it as an authority.
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "aggregator"}, NotAfter: b.begin.AddDate(1, 0, 0),
		BasicConstraintsValid: true, IsCA: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	aggregator, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	config := `{"apiVersion":"v1","kind":"Config",` +
		`"clusters":[{"name":"c","cluster":{"server":"https://10.90.0.1:6443","insecure-skip-tls-verify":true}}],` +
		`"users":[{"name":"u","user":{"token":"` + token + `"}}],` +
		`"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"current-context":"x"}`
	for name, data := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"proxy.crt":  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: aggregator}),
		"tokens":     []byte(token + ",admin,1,system:masters\n"),
		"kubeconfig": []byte(config),
	} {
		if err := os.WriteFile(filepath.Join(b.dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// controlPlane returns the machine with etcd and the servers of Kubernetes.
func (b *bed) controlPlane() machine {
	in := func(name string) string { return filepath.Join(b.dir, name) }
	return machine{Hostname: "control", Files: map[string]string{
		in("prometheus.yaml"): fmt.Sprintf(prometheusConfig, b.kubeconfig()),
	}, Daemons: []daemon{
		{Name: "etcd", Args: []string{b.kube, "etcd", "--data-dir", in("etcd"), "--unsafe-no-fsync",
			"--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
			"--listen-peer-urls", "http://127.0.0.1:2380"}},
		{Name: "apiserver", Args: []string{b.kube, "kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379", "--cert-dir", in("certs"),
			"--bind-address", "0.0.0.0", "--advertise-address", "10.90.0.1", "--service-cluster-ip-range", "10.96.0.0/16",
			"--token-auth-file", in("tokens"), "--authorization-mode", "RBAC", "--kubelet-preferred-address-types", "InternalIP",
			"--service-account-issuer", "https://kubernetes.default.svc", "--service-account-key-file", in("sa.key"),
			"--service-account-signing-key-file", in("sa.key"), "--enable-aggregator-routing", "--requestheader-client-ca-file", in("proxy.crt"),
			"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
			"--requestheader-extra-headers-prefix", "X-Remote-Extra-", "--proxy-client-cert-file", in("proxy.crt"), "--proxy-client-key-file", in("sa.key")}},
		// The certificate of the API, with its authority, is made by the API at its start.
		{Name: "controllers", Await: in("certs/apiserver.crt"), Args: []string{b.kube, "kube-controller-manager", "--kubeconfig", b.kubeconfig(),
			"--service-account-private-key-file", in("sa.key"), "--root-ca-file", in("certs/apiserver.crt"), "--leader-elect=false", "--horizontal-pod-autoscaler-sync-period", "5s"}},
		{Name: "scheduler", Args: []string{b.kube, "kube-scheduler", "--kubeconfig", b.kubeconfig(), "--leader-elect=false"}},
		{Name: "prometheus", Args: []string{b.prometheus, "--config.file", in("prometheus.yaml"),
			"--storage.tsdb.path", in("prometheus"), "--web.listen-address", "10.90.0.1:9090"}},
	}}
}

// prometheusConfig follows the annotations of pods, as the chart of Prometheus does.
const prometheusConfig = `global: {scrape_interval: 2s}
scrape_configs:
  - job_name: kubernetes-pods
    kubernetes_sd_configs: [{role: pod, kubeconfig_file: %q}]
    relabel_configs:
      - {source_labels: [__meta_kubernetes_pod_annotation_prometheus_io_scrape], regex: "true", action: keep}
      - source_labels: [__address__, __meta_kubernetes_pod_annotation_prometheus_io_port]
        regex: '([^:]+)(?::\d+)?;(\d+)'
        replacement: '$1:$2'
        target_label: __address__
      - {source_labels: [__meta_kubernetes_namespace], target_label: namespace}
      - {source_labels: [__meta_kubernetes_pod_name], target_label: pod}
`

// node returns machine i with containerd, kubelet and kube-proxy.
func (b *bed) node(i int) machine {
	in := func(name string) string { return filepath.Join(b.dir, "n"+strconv.Itoa(i), name) }
	name := "node" + strconv.Itoa(i)
	var libraries []string
	for _, dir := range []string{"lib", "usr/lib"} {
		// The pattern is right, so there is no error.
		found, _ := filepath.Glob(filepath.Join(b.debian, dir, "*-linux-gnu"))
		libraries = append(libraries, found...)
	}
	return machine{
		Hostname: name,
		Env: []string{
			"PATH=" + filepath.Join(b.debian, "usr/bin") + ":" + filepath.Join(b.debian, "usr/sbin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
			"LD_LIBRARY_PATH=" + strings.Join(libraries, ":"),
		},
		Files: map[string]string{
			in("cni/10.conflist"): fmt.Sprintf(`{"cniVersion":"0.4.0","name":"p","plugins":[{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,`+
				`"subnet":"10.91.%d.0/24","routes":[{"dst":"0.0.0.0/0"}]}}]}`, in("ipam"), i),
			in("containerd.toml"): fmt.Sprintf(containerdConfig, in("containerd"), filepath.Join(b.debian, "usr/lib/cni"), in("cni"), in("opt")),
			in("kubelet.yaml"):    kubeletConfig,
		},
		Daemons: []daemon{
			{Name: "containerd", Args: []string{"containerd", "--config", in("containerd.toml")}},
			{Name: "kubelet", Await: "/run/containerd/containerd.sock", Args: []string{b.kube, "kubelet", "--kubeconfig", b.kubeconfig(),
				"--config", in("kubelet.yaml"), "--cert-dir", in("certs"), "--root-dir", in("kubelet"), "--hostname-override", name, "--node-ip", "10.90.0.1" + strconv.Itoa(i)}},
			{Name: "proxy", Args: []string{b.kube, "kube-proxy", "--kubeconfig", b.kubeconfig(), "--proxy-mode", "nftables", "--cluster-cidr", "10.91.0.0/16",
				"--hostname-override", name, "--conntrack-max-per-core", "0", "--nodeport-addresses", "127.0.0.0/8"}},
		},
	}
}

// restrict_oom_score_adj is for a machine without CAP_SYS_RESOURCE: runc dies without it.
const containerdConfig = `version = 2
root = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "bed.test/pause:1"
  restrict_oom_score_adj = true
  disable_tcp_service = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
[plugins."io.containerd.internal.v1.opt"]
  path = %q
`

// cgroupRoot is the parent of the pods' groups.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: ` + cgroupRoot + `
cgroupsPerQOS: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
evictionHard: {}
imageGCHighThresholdPercent: 100
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
failSwapOn: false
oomScoreAdj: 0
`

// connect joins the machines by a bridge on machine 0, and routes the pods of the nodes.
func (b *bed) connect(ctx context.Context) error {
	type step struct {
		machine int
		args    string
	}
	steps := []step{
		{0, "link add br0 type bridge"}, {0, "addr add 10.90.0.1/24 dev br0"}, {0, "link set br0 up"},
	}
	for _, i := range nodes {
		pid, err := b.pid(i)
		if err != nil {
			return err
		}
		steps = append(steps,
			step{0, fmt.Sprintf("link add v%d type veth peer name eth0 netns %d", i, pid)},
			step{0, fmt.Sprintf("link set v%d master br0 up", i)},
			step{i, fmt.Sprintf("addr add 10.90.0.1%d/24 dev eth0", i)},
			step{i, "link set eth0 up"},
			step{i, "route add default via 10.90.0.1"},
			step{0, fmt.Sprintf("route add 10.91.%d.0/24 via 10.90.0.1%d", i, i)},
		)
		for _, other := range nodes {
			if other != i {
				steps = append(steps, step{i, fmt.Sprintf("route add 10.91.%d.0/24 via 10.90.0.1%d", other, other)})
			}
		}
	}
	for _, s := range steps {
		if out, err := b.inNet(ctx, s.machine, "ip", strings.Fields(s.args)...).CombinedOutput(); err != nil {
			return fmt.Errorf("machine %d: ip %s: %w: %s", s.machine, s.args, err, out)
		}
	}
	return nil
}

// importImages gives the images to both nodes.
func (b *bed) importImages(ctx context.Context) error {
	ctr := filepath.Join(b.debian, "usr/bin/ctr")
	for _, i := range nodes {
		if err := b.await(ctx, fmt.Sprintf("containerd of node%d", i), func() (bool, string) {
			out, err := b.inNode(ctx, i, ctr, "version").CombinedOutput()
			return err == nil, string(out)
		}); err != nil {
			return err
		}
		for name, tar := range b.images {
			if out, err := b.inNode(ctx, i, ctr, "-n", "k8s.io", "images", "import", tar).CombinedOutput(); err != nil {
				return fmt.Errorf("image %s on node%d: %w: %s", name, i, err, out)
			}
		}
	}
	return nil
}

// inNet returns a command in the network of machine i.
func (b *bed) inNet(ctx context.Context, i int, name string, args ...string) *exec.Cmd {
	return b.enter(ctx, i, []string{"--net"}, name, args)
}

// inNode returns a command in all namespaces of machine i.
func (b *bed) inNode(ctx context.Context, i int, name string, args ...string) *exec.Cmd {
	return b.enter(ctx, i, []string{"--net", "--mount", "--pid", "--uts", "--ipc"}, name, args)
}

func (b *bed) enter(ctx context.Context, i int, namespaces []string, name string, args []string) *exec.Cmd {
	pid, err := b.pid(i)
	if err != nil {
		// The command fails with this text.
		return exec.CommandContext(ctx, err.Error())
	}
	all := append([]string{"--target", strconv.Itoa(pid)}, namespaces...)
	return exec.CommandContext(ctx, "nsenter", append(append(all, "--", name), args...)...)
}

// kubectl returns a command that asks the API.
func (b *bed) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	return b.inNet(ctx, 0, filepath.Join(b.dir, "kube"), append([]string{"kubectl", "--kubeconfig", b.kubeconfig()}, args...)...)
}

// startMachine starts process 1 of machine i. Its daemons start when the result is closed.
func (b *bed) startMachine(i int, spec machine) (io.Closer, error) {
	spec.Dir = filepath.Join(b.dir, "n"+strconv.Itoa(i))
	if err := os.MkdirAll(spec.Dir, 0o755); err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(spec.Dir, "machine.json")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(spec.Dir, "init.log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // the child has a descriptor of its own
	cmd := exec.Command(self, "init", path)
	cmd.Stdout, cmd.Stderr = log, log
	start, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("machine %d: %w", i, err)
	}
	pid := strconv.Itoa(cmd.Process.Pid)
	// Reaps the process if down kills it, else it outlives this command.
	go func() { _ = cmd.Wait() }()
	return start, os.WriteFile(filepath.Join(spec.Dir, "pid"), []byte(pid), 0o600)
}

// pid returns the process id of machine i, of which it checks the command line.
func (b *bed) pid(i int) (int, error) {
	dir := filepath.Join(b.dir, "n"+strconv.Itoa(i))
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		return 0, fmt.Errorf("no bed runs: %w", err)
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return 0, err
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !bytes.Contains(line, []byte("\x00init\x00"+dir)) {
		return 0, fmt.Errorf("machine %d of the bed does not run", i)
	}
	return pid, nil
}

// down kills the machines, waits for their end, and removes their files.
func (b *bed) down() error {
	for i := range len(nodes) + 1 {
		pid, err := b.pid(i)
		if err != nil {
			continue // it does not run
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		deadline := time.Now().Add(30 * time.Second)
		for err == nil {
			if time.Now().After(deadline) {
				return fmt.Errorf("machine %d still runs %s after SIGKILL", i, 30*time.Second)
			}
			time.Sleep(20 * time.Millisecond)
			_, err = b.pid(i)
		}
	}
	if err := removeCgroups(); err != nil {
		return err
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return err
	}
	b.say("down")
	return nil
}
