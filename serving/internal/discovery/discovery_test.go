package discovery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// TestMain ignores Go's resolver, which waits some seconds for an answer that does not come.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net.(*Resolver).tryOneName"),
		goleak.IgnoreAnyFunction("net.(*Resolver).goLookupIPCNAMEOrder"), goleak.IgnoreAnyFunction("net.(*Resolver).lookupIPAddr.func2"))
}

// watch starts a source and returns the lists that it reports. The test waits for its end.
func watch(t *testing.T, source Source) <-chan []Endpoint {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lists := make(chan []Endpoint, 100)
	var watching sync.WaitGroup
	watching.Go(func() { source.Watch(ctx, func(list []Endpoint) { lists <- list }, func(error) {}) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
	})
	return lists
}

// await waits for a list of these addresses.
func await(t *testing.T, lists <-chan []Endpoint, want ...string) []Endpoint {
	t.Helper()
	for {
		select {
		case list := <-lists:
			var got []string
			for _, e := range list {
				got = append(got, e.Addr)
			}
			if slices.Equal(got, want) {
				return list
			}
			t.Logf("list %v", got)
		case <-t.Context().Done():
			t.Fatal("the test ends")
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for target, want := range map[string]string{
		"":                          `target "" has no scheme: write static:///host:port,host:port or dns:///host:port or k8s:///[namespace/]service:port`,
		"model:9100":                `target "model:9100" has no scheme`,
		"xds:///model:9100":         `target "xds:///model:9100": unknown scheme "xds": write static:///`,
		"http://model:9100":         `target "http://model:9100": unknown scheme "http": write static:///host:port,host:port or dns:///host:port or k8s:///`,
		"dns:///a:1,b:2":            `target "dns:///a:1,b:2": dns takes one name, not "a:1,b:2": for a list, write static:///a:1,b:2`,
		"static://a:1":              `target "static://a:1": "a:1" stands after "//": write static:///a:1`,
		"dns://a:1":                 `target "dns://a:1": "a:1" stands after "//": write dns:///a:1`,
		"dns://a/b:1":               `target "dns://a/b:1": DNS server: "a" is not host:port`,
		"static:///":                `"" is not host:port: missing port in address`,
		"static:///a:1,b":           `"b" is not host:port: address b: missing port in address`,
		"static:///a:1,:2":          `":2" has no host`,
		"static:///a:http":          `"a:http": port "http" is not a number from 1 to 65535`,
		"static:///a:0":             `"a:0": port "0" is not a number from 1 to 65535`,
		"static:///a:65536":         `"a:65536": port "65536" is not a number from 1 to 65535`,
		"static:///[::1]:9,[::1]:9": `"[::1]:9" stands twice in the list`,

		"static:///h:1,h:01":         `"h:1" stands twice in the list`,
		"static:///h:1,H:1":          `"H:1" stands twice in the list`,
		"static:///[::1]:9,[0::1]:9": `"[::1]:9" stands twice in the list`,
		"static:///a b:1":            `"a b:1": host "a b" is neither an IP address nor a name of letters, digits, '-', '_' and '.'`,
		"dns:///a b:80":              `target "dns:///a b:80": "a b:80": host "a b" is neither an IP address nor a name`,
		"dns:///a/b:80":              `target "dns:///a/b:80": "a/b:80": host "a/b" is neither an IP address nor a name`,
		"dns://n s:53/a:80":          `DNS server: "n s:53": host "n s" is neither`,
		"dns://ns:53/":               `target "dns://ns:53/" has a DNS server and no name: write dns://ns:53/host:port`,
	} {
		source, err := Parse(target, Config{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) = %v, %v, want an error with %q", target, source, err, want)
		}
	}
}

// TestParseNormalises: the form of a host or a port in the target does not matter.
func TestParseNormalises(t *testing.T) {
	source, err := Parse("static:///10.0.0.7:09100,[FE80:0::1%eth0]:1,my_pod-0.model.svc.:2", Config{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, watch(t, source), "10.0.0.7:9100", "[fe80::1%eth0]:1", "my_pod-0.model.svc.:2")
}

func TestStatic(t *testing.T) {
	source, err := Parse("static:///b:2, a:1,[::1]:3", Config{})
	if err != nil {
		t.Fatal(err)
	}
	got := await(t, watch(t, source), "[::1]:3", "a:1", "b:2")
	want := []Endpoint{
		{Addr: "[::1]:3", Serving: true, Ready: true}, {Addr: "a:1", Serving: true, Ready: true}, {Addr: "b:2", Serving: true, Ready: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
