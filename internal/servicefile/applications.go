package servicefile

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// App is one of the file's applications: what an operator says of an app of the
// program. What is empty or nil, the file does not say.
type App struct {
	Name, RoutePrefix string
	Deployments       []Deployment
	// Place is where it stands, "FILE:LINE:COLUMN: PATH".
	Place string
}

// Deployment is what the file says of a deployment of an app.
type Deployment struct {
	Name string
	// UserConfig is a JSON value; empty for none.
	UserConfig json.RawMessage

	NumReplicas, MaxOngoingRequests, MaxQueuedRequests                                       *int
	GracefulShutdownWaitLoop, GracefulShutdownTimeout, HealthCheckPeriod, HealthCheckTimeout *time.Duration

	Place string
}

// Paths of the applications. They are lists, of which the brackets are an item.
const (
	wordApps        = "applications"
	pathApp         = wordApps + "[]"
	wordDeployments = "deployments"
	pathDeployment  = pathApp + "." + wordDeployments + "[]"
)

// appKeys are the keys of the applications, in the order of the documents. No
// variable can say them: apps are many.
var appKeys = []Key{
	{Path: pathApp + ".name", form: text,
		Meaning: "application of the program. Unset: the only one, or the one named `default`"},
	{Path: pathApp + ".route_prefix", form: text,
		Meaning: "path prefix of the application, read at the start only"},
	{Path: pathDeployment + ".name", form: text,
		Meaning: "deployment of the application"},
	{Path: pathDeployment + ".num_replicas", form: count(1), Default: "1",
		Meaning: "number of replicas"},
	{Path: pathDeployment + ".max_ongoing_requests", form: count(1), Default: "5",
		Meaning: "requests that one replica runs at a time"},
	{Path: pathDeployment + ".max_queued_requests", form: count(-1), Default: "-1",
		Meaning: "requests that may wait for a replica; -1 is no limit"},
	{Path: pathDeployment + ".user_config", form: document,
		Meaning: "configuration of the deployment's code; it replaces the program's as a whole"},
	{Path: pathDeployment + ".graceful_shutdown_wait_loop_s", form: seconds, Default: "2s",
		Meaning: "time after which the log reports that a stopping replica waits for requests"},
	{Path: pathDeployment + ".graceful_shutdown_timeout_s", form: seconds, Default: "20s",
		Meaning: "time that a stopping replica waits for its requests"},
	{Path: pathDeployment + ".health_check_period_s", form: seconds, Default: "10s",
		Meaning: "time from a health check to the next"},
	{Path: pathDeployment + ".health_check_timeout_s", form: seconds, Default: "30s",
		Meaning: "time for a health check"},
}

// count is a form of whole numbers.
func count(least int) form {
	is := form{says: fmt.Sprintf("a whole number, %d or more, without quotes", least)}
	is.read = func(node *yaml.Node) (string, bool) {
		value, ok := readInteger(node)
		n, err := strconv.ParseInt(value, 10, 32)
		return value, ok && err == nil && n >= int64(least)
	}
	return is
}

// Apps are the file's applications, in its order.
func (f *File) Apps() []App { return slices.Clone(f.apps) }

// applications reads the list of them.
func (f *File) applications(node *yaml.Node) {
	f.items(node, wordApps, func(item *yaml.Node, path string) {
		said := f.fields(item, path, pathApp)
		app := App{
			Name:        said.text("name"),
			RoutePrefix: said.text("route_prefix"),
			Place:       f.fault(said.place("name", item), path).Error(),
		}
		f.items(said.values[wordDeployments], path+"."+wordDeployments, func(item *yaml.Node, path string) {
			if d, ok := f.deployment(item, path); ok {
				app.Deployments = append(app.Deployments, d)
			}
		})
		f.apps = append(f.apps, app)
	})
}

// deployment reads one; ok is false for one without a name.
func (f *File) deployment(item *yaml.Node, path string) (d Deployment, ok bool) {
	before := len(f.faults)
	said := f.fields(item, path, pathDeployment)
	d = Deployment{
		Name:                     said.text("name"),
		NumReplicas:              said.number("num_replicas"),
		MaxOngoingRequests:       said.number("max_ongoing_requests"),
		MaxQueuedRequests:        said.number("max_queued_requests"),
		GracefulShutdownWaitLoop: said.duration("graceful_shutdown_wait_loop_s"),
		GracefulShutdownTimeout:  said.duration("graceful_shutdown_timeout_s"),
		HealthCheckPeriod:        said.duration("health_check_period_s"),
		HealthCheckTimeout:       said.duration("health_check_timeout_s"),
		Place:                    f.fault(said.place("name", item), path).Error(),
	}
	if config := said.values["user_config"]; config != nil {
		d.UserConfig = f.json(config, path+".user_config")
	}
	if d.Name == "" && len(f.faults) == before {
		f.fail(item, "%s: it has no name; want that of a deployment of the app", path)
	}
	return d, d.Name != ""
}

// items calls read with each item of a list, nil being an empty one.
func (f *File) items(node *yaml.Node, path string, read func(item *yaml.Node, path string)) {
	switch {
	case node == nil || isNull(node):
		return
	case node.Kind == yaml.AliasNode:
		f.fail(node, "%s: %s", path, noAlias)
		return
	case node.Kind != yaml.SequenceNode:
		f.fail(node, "%s: %s; want a list, whose items begin with \"- name: \"", path, seen(node))
		return
	}
	for i, item := range node.Content {
		read(item, fmt.Sprintf("%s[%d]", path, i))
	}
}

// fields are the keys of one item of a list, with what is right behind them.
type fields struct {
	values map[string]*yaml.Node
	texts  map[string]string // as a variable would have them; empty for a document
}

// fields reads the keys of an item, of which the table knows those below pattern.
func (f *File) fields(node *yaml.Node, path, pattern string) fields {
	said := fields{values: map[string]*yaml.Node{}, texts: map[string]string{}}
	var known []string
	for _, k := range appKeys {
		rest, under := strings.CutPrefix(k.Path, pattern+".")
		if word, _, _ := strings.Cut(rest, "["); under && !slices.Contains(known, word) {
			known = append(known, word)
		}
	}
	switch {
	case node.Kind == yaml.AliasNode:
		f.fail(node, "%s: %s", path, noAlias)
		return said
	case node.Kind != yaml.MappingNode:
		f.fail(node, "%s: %s; want keys below it: %s", path, seen(node), strings.Join(known, ", "))
		return said
	}
	for _, e := range f.entries(node, path) {
		word := e.key.Value
		at := dotted(path, word)
		i := slices.IndexFunc(appKeys, func(k Key) bool { return k.Path == dotted(pattern, word) })
		switch {
		case slices.Contains(known, word) && i < 0: // a list, which is read by itself
			said.values[word] = e.value
		case i < 0:
			f.unknown(e, at, dotted(pattern, word), known)
		case e.value.Kind == yaml.AliasNode:
			f.fail(e.value, "%s: %s", at, noAlias)
		case isNull(e.value):
		default:
			value, ok := appKeys[i].form.read(e.value)
			if !ok {
				f.fail(e.value, "%s: %s; want %s", at, seen(e.value), appKeys[i].form.says)
				continue
			}
			said.values[word], said.texts[word] = e.value, value
			f.said = append(f.said, saidOf{path: at, text: value, at: e.value})
		}
	}
	return said
}

// saidOf is what the file says of one key of an application, for Settings.
type saidOf struct {
	path, text string
	at         *yaml.Node
}

func (s fields) text(word string) string { return s.texts[word] }

func (s fields) number(word string) *int {
	if s.texts[word] == "" {
		return nil
	}
	n, _ := strconv.Atoi(s.texts[word]) // its form is that of one
	return &n
}

func (s fields) duration(word string) *time.Duration {
	if s.texts[word] == "" {
		return nil
	}
	d, _ := time.ParseDuration(s.texts[word]) // likewise
	return &d
}

// place is where a key's value stands, or else the item that lacks it.
func (s fields) place(word string, item *yaml.Node) *yaml.Node {
	if at := s.values[word]; at != nil {
		return at
	}
	return item
}

// json is a part of the file as JSON, whose keys stay in their order; nil where
// something in it has no form there, which is a fault.
func (f *File) json(node *yaml.Node, path string) json.RawMessage {
	before := len(f.faults)
	f.plain(node, path)
	var out strings.Builder
	f.writeJSON(&out, node, path)
	if len(f.faults) > before {
		return nil
	}
	return json.RawMessage(out.String())
}

func (f *File) writeJSON(out *strings.Builder, node *yaml.Node, path string) {
	switch node.Kind {
	case yaml.MappingNode:
		out.WriteByte('{')
		for i := 0; i+1 < len(node.Content); i += 2 {
			if i > 0 {
				out.WriteByte(',')
			}
			out.WriteString(quoted(node.Content[i].Value))
			out.WriteByte(':')
			f.writeJSON(out, node.Content[i+1], dotted(path, node.Content[i].Value))
		}
		out.WriteByte('}')
	case yaml.SequenceNode:
		out.WriteByte('[')
		for i, item := range node.Content {
			if i > 0 {
				out.WriteByte(',')
			}
			f.writeJSON(out, item, fmt.Sprintf("%s[%d]", path, i))
		}
		out.WriteByte(']')
	case yaml.ScalarNode:
		f.writeScalar(out, node, path)
	}
}

func (f *File) writeScalar(out *strings.Builder, node *yaml.Node, path string) {
	switch node.ShortTag() {
	case "!!null":
		out.WriteString("null")
	case "!!bool":
		value, _ := readBoolean(node)
		out.WriteString(value)
	case "!!int":
		value, ok := readInteger(node)
		if !ok {
			f.fail(node, "%s: %s is too large; put it in quotes, and read it as a text", path, seen(node))
		}
		out.WriteString(value)
	case "!!float":
		n, ok := float(node)
		if !ok || math.IsInf(n, 0) || math.IsNaN(n) {
			f.fail(node, "%s: %s has no form in JSON; write a finite number", path, seen(node))
			return
		}
		out.WriteString(strconv.FormatFloat(n, 'g', -1, 64))
	default: // a text, or a date, which is one in JSON
		out.WriteString(quoted(node.Value))
	}
}

// quoted is a text in JSON.
func quoted(text string) string {
	data, _ := json.Marshal(text) // every text has a form
	return string(data)
}
