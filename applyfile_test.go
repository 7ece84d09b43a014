package servetrace

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/servetrace/servetrace/serving"
)

// greeting is a value of each replica of the greeter: the text comes with the user
// config.
type greeting struct{ text chan string } // holds one

func greeter() *serving.Deployment {
	var local *serving.Local[*greeting]
	d := serving.NewDeployment("Greeter", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := local.Get(r.Context())
		text := <-g.text
		g.text <- text
		_, _ = io.WriteString(w, text)
	}))
	local = serving.PerReplica(d, func(context.Context) (*greeting, error) {
		g := &greeting{text: make(chan string, 1)}
		g.text <- "nothing"
		return g, nil
	})
	return d
}

func (g *greeting) Reconfigure(_ context.Context, c serving.UserConfig) error {
	var config struct{ Text string }
	if err := c.Decode(&config); err != nil {
		return err
	}
	<-g.text
	g.text <- config.Text
	return nil
}

// SIGHUP applies the edited service file to the applications, under load. A file with an
// error, or a refused user config, changes nothing except the log.
func TestApplicationsAreEditedUnderLoad(t *testing.T) {
	text := func(greeting string) string {
		return "applications: [{name: greetings, deployments: [{name: Greeter, num_replicas: 2, user_config: " + greeting + "}]}]\n"
	}
	file := serviceFile(t, text("{text: one}"))
	p := startProc(t, "SERVE_CONFIG="+file, "WITH_GREETER=1")
	greet := func() string {
		t.Helper()
		status, body := get(t, p.url+"/greet")
		if status != 200 {
			t.Fatalf("status %d: %s\n%s", status, body, p.log)
		}
		return body
	}
	if got := greet(); got != "one" {
		t.Errorf("the greeting is %q at first, want one", got)
	}
	for i, edit := range []struct{ text, until, greeting string }{
		{text("{text: two}"), `msg="the applications are reloaded from the service file"`, "two"},
		{text("{txt: three}"), `replica did not take the new user config`, "two"},
		{text("{text: four}"), `msg="the applications are reloaded from the service file"`, "four"},
		{strings.Replace(text("{text: five}"), "Greeter", "Greter", 1),
			`serve.yaml:1:55: applications[0].deployments[0]: app \"greetings\" has no deployment \"Greter\"; did you mean Greeter?`, "four"},
		{"applications: [", `msg="the service file cannot be used; the applications stay as they were" error="` + file, "four"},
		{"{}", `msg="the applications are reloaded from the service file"`, "four"}, // it runs on; the code has none
	} {
		before := len(p.log.String())
		next := filepath.Join(t.TempDir(), "next.yaml")
		if err := os.WriteFile(next, []byte(edit.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, file); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGHUP)
		late := time.After(bound)
		for !strings.Contains(p.log.String()[before:], edit.until) {
			greet()
			select {
			case <-late:
				t.Fatalf("edit %d: no %s in the log:\n%s", i, edit.until, p.log)
			default:
			}
		}
		if got := greet(); got != edit.greeting {
			t.Errorf("edit %d: the greeting is %q, want %q\n%s", i, got, edit.greeting, p.log)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.log)
	}
}

// A service does not start with a file about unknown applications, or with a user config
// for a deployment that takes none.
func TestFileOfAnotherProgram(t *testing.T) {
	for text, want := range map[string]string{
		"applications: [{name: defualt}]":                                 `:1:23: applications[0]: there is no app "defualt"; did you mean default?`,
		"applications: [{deployments: [{name: E}]}]":                      `:1:38: applications[0].deployments[0]: app "default" has no deployment "E"; want one of D`,
		"applications: [{route_prefix: api}]":                             `:1:16: applications[0]: app "default": route prefix "api": want "/" or a clean path such as /api, without wildcards, outside /-/`,
		"applications: [{}, {}]":                                          `:1:20: applications[1]: app "default": there is something of it already at FILE:1:16: applications[0]`,
		"applications: [{deployments: [{name: D, user_config: {a: 1}}]}]": `:1:38: applications[0].deployments[0]: app "default": deployment "D": it has a user config, and no PerReplica whose value could take it`,
	} {
		t.Run(text, func(t *testing.T) {
			file := serviceFile(t, text)
			cfg, err := LoadConfigFile(file, env("SERVE_HTTP_PORT=0"))
			if err != nil {
				t.Fatal(err)
			}
			app := serving.NewApp("default", serving.NewDeployment("D", http.NotFoundHandler()))
			err = Run(t.Context(), cfg, []*serving.App{app})
			if want := "settings: " + file + strings.ReplaceAll(want, "FILE", file); fmt.Sprint(err) != want {
				t.Errorf("error\n%v\nwant\n%v", err, want)
			}
		})
	}
}
