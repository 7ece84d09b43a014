package servicefile

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestApps(t *testing.T) {
	f := Parse("s.yaml", []byte(`applications:
- name: shop
  route_prefix: /shop
  import_path: shop:app
  deployments:
  - name: Cart
    num_replicas: 3
    max_ongoing_requests: 0x10
    max_queued_requests: -1
    user_config:
      text: "1"
      number: 1
      list: [1.5, null, true, {a: 2024-01-01}, 0o17, 1e3]
      "a \"b\"": |
        two
        lines
    graceful_shutdown_wait_loop_s: 0.5
    graceful_shutdown_timeout_s: 30
    health_check_period_s: 1
    health_check_timeout_s: 2
    ray_actor_options: {num_cpus: 1}
  - {name: Stock, user_config: null, num_replicas: null}
-
  deployments: []
`), unset)
	if err := f.Err(); err != nil {
		t.Fatal(err)
	}
	n := func(n int) *int { return &n }
	d := func(d time.Duration) *time.Duration { return &d }
	want := []App{
		{Name: "shop", RoutePrefix: "/shop", Place: "s.yaml:2:9: applications[0]", Deployments: []Deployment{
			{
				Name: "Cart", NumReplicas: n(3), MaxOngoingRequests: n(16), MaxQueuedRequests: n(-1),
				UserConfig:               json.RawMessage(`{"text":"1","number":1,"list":[1.5,null,true,{"a":"2024-01-01"},15,1000],"a \"b\"":"two\nlines\n"}`),
				GracefulShutdownWaitLoop: d(time.Second / 2), GracefulShutdownTimeout: d(30 * time.Second),
				HealthCheckPeriod: d(time.Second), HealthCheckTimeout: d(2 * time.Second),
				Place: "s.yaml:6:11: applications[0].deployments[0]",
			},
			{Name: "Stock", Place: "s.yaml:22:12: applications[0].deployments[1]"},
		}},
		{Place: "s.yaml:24:3: applications[1]"},
	}
	if diff := cmp.Diff(want, f.Apps); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	warnings := []string{
		"s.yaml:4:3: applications[0].import_path has no effect: " + appsAreCode,
		"s.yaml:21:5: applications[0].deployments[0].ray_actor_options has no effect: " + onCluster,
	}
	if diff := cmp.Diff(warnings, f.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	held := map[string]string{}
	for _, s := range f.Settings() {
		held[s.Key] = s.Value + " " + s.From
	}
	for key, want := range map[string]string{
		"applications[0].deployments[0].num_replicas": "3 s.yaml:7",
		"applications[0].deployments[0].user_config":  "<110 bytes> s.yaml:11",
	} {
		if held[key] != want {
			t.Errorf("%s is %q, want %q", key, held[key], want)
		}
	}
}

func TestFaultsOfApps(t *testing.T) {
	for text, want := range map[string]string{
		"applications: {name: a}":                            `1:15: applications: a mapping; want a list, whose items begin with "- name: "`,
		"applications: [a]":                                  `1:16: applications[0]: the text "a"; want keys below it: name, route_prefix, deployments`,
		"applications: [{nam: a}]":                           `1:17: applications[0]: there is no key "nam"; did you mean name?`,
		"applications: [{name: 1}]":                          `1:23: applications[0].name: the number 1; want a text`,
		"applications: [{name: a, name: b}]":                 `1:26: applications[0].name: this key stands in line 1 already`,
		"applications: [{deployments: 1}]":                   `1:30: applications[0].deployments: the number 1; want a list, whose items begin with "- name: "`,
		"applications: [{deployments: [{num_replicas: 1}]}]": `1:31: applications[0].deployments[0]: it has no name; want the name of a deployment of the app`,
		dep("num_replica: 1"):                                `1:41: applications[0].deployments[0]: there is no key "num_replica"; did you mean num_replicas?`,
		dep("num_replicas: 0"):                               `1:55: applications[0].deployments[0].num_replicas: the number 0; want a whole number, 1 or more, without quotes`,
		dep(`num_replicas: "1"`):                             `1:55: applications[0].deployments[0].num_replicas: the text "1"; want a whole number, 1 or more, without quotes`,
		dep("num_replicas: 99999999999"):                     `1:55: applications[0].deployments[0].num_replicas: the number 99999999999; want a whole number, 1 or more, without quotes`,
		dep("max_queued_requests: -2"):                       `1:62: applications[0].deployments[0].max_queued_requests: the number -2; want a whole number, -1 or more, without quotes`,
		dep("health_check_period_s: 0"):                      `1:64: applications[0].deployments[0].health_check_period_s: the number 0; want a number of seconds above zero, without a unit`,
		dep("user_config: {a: .inf}"):                        `1:58: applications[0].deployments[0].user_config.a: the number .inf has no form in JSON; write a finite number`,
		dep("user_config: [18446744073709551615]"):           `1:55: applications[0].deployments[0].user_config[0]: the number 18446744073709551615 is too large; put it in quotes, and read it as a text`,
		dep("user_config: {a: &x 1, b: [*x]}"):               `1:68: applications[0].deployments[0].user_config.b[0]: ` + noAlias,
		dep("user_config: {a: 1, a: 2}"):                     `1:61: applications[0].deployments[0].user_config.a: this key stands in line 1 already`,
		"num_replicas: 1":                                    `1:1: there is no key "num_replicas"; did you mean applications[].deployments[].num_replicas?`,
	} {
		t.Run(text, func(t *testing.T) {
			if got := fmt.Sprint(Parse("s.yaml", []byte(text), unset).Err()); got != "s.yaml:"+want {
				t.Errorf("error\n%s\nwant\ns.yaml:%s", got, want)
			}
		})
	}
}

// dep is a file with one key of a deployment.
func dep(text string) string { return "applications: [{deployments: [{name: D, " + text + "}]}]" }
