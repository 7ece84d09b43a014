package servicefile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// App holds the operator's settings of an application of the program. A field is empty or
// nil if the file does not have its key.
type App struct {
	Name, RoutePrefix string
	Deployments       []Deployment
	// Place is the place of the application in the file, "FILE:LINE:COLUMN: PATH".
	Place string
}

// Deployment holds the operator's settings of a deployment of an application.
type Deployment struct {
	Name string
	// UserConfig is the value of user_config as JSON. It is empty if the file has none.
	UserConfig json.RawMessage

	NumReplicas, MaxOngoingRequests, MaxQueuedRequests                                       *int
	GracefulShutdownWaitLoop, GracefulShutdownTimeout, HealthCheckPeriod, HealthCheckTimeout *time.Duration

	// Place is the place of the deployment in the file, as in App.
	Place string
}

// app reads an item of the list of applications.
func (r reader) app(node *yaml.Node, path string) {
	at := len(r.f.Apps)
	r.f.Apps = append(r.f.Apps, App{})
	item := r.item(node, path, pathApp)
	app := &r.f.Apps[at]
	app.Name, app.RoutePrefix, app.Place = item.text("name"), item.text("route_prefix"), item.place
}

// deployment reads an item of the list of deployments of the last application.
func (r reader) deployment(node *yaml.Node, path string) {
	before := len(r.f.faults.list)
	item := r.item(node, path, pathDeployment)
	d := Deployment{
		Name:                     item.text("name"),
		NumReplicas:              item.number("num_replicas"),
		MaxOngoingRequests:       item.number("max_ongoing_requests"),
		MaxQueuedRequests:        item.number("max_queued_requests"),
		GracefulShutdownWaitLoop: item.duration("graceful_shutdown_wait_loop_s"),
		GracefulShutdownTimeout:  item.duration("graceful_shutdown_timeout_s"),
		HealthCheckPeriod:        item.duration("health_check_period_s"),
		HealthCheckTimeout:       item.duration("health_check_timeout_s"),
		Place:                    item.place,
	}
	if config := item.text("user_config"); config != "" {
		d.UserConfig = json.RawMessage(config)
	}
	switch {
	case d.Name != "":
		app := &r.f.Apps[len(r.f.Apps)-1]
		app.Deployments = append(app.Deployments, d)
	case len(r.f.faults.list) == before:
		r.f.faults.add(node, "%s: it has no name; want the name of a deployment of the app", path)
	}
}

// item has the values of one item of a list, such as a deployment. Each value is a text in the
// form that an environment variable has.
type item struct {
	texts map[string]string // values by their keys
	place string            // place of the item's name in the file, or of the item if it has no name
}

// item reads an item of a list. pattern is its path in the table of keys.
func (r reader) item(node *yaml.Node, path, pattern string) item {
	before := len(r.f.values)
	r.section(node, path, pattern)
	texts := map[string]string{}
	for _, v := range r.f.values[before:] {
		word := strings.TrimPrefix(v.path, path+".")
		texts[word] = v.text
		if word == "name" {
			node = v.at
		}
	}
	return item{texts, r.f.faults.at(node, path).Error()}
}

func (i item) text(key string) string { return i.texts[key] }

func (i item) number(key string) *int {
	if i.texts[key] == "" {
		return nil
	}
	n, _ := strconv.Atoi(i.texts[key]) // cannot fail, because the reader accepts only numbers for this key
	return &n
}

func (i item) duration(key string) *time.Duration {
	if i.texts[key] == "" {
		return nil
	}
	d, _ := time.ParseDuration(i.texts[key]) // cannot fail, because the reader accepts only durations for this key
	return &d
}

// json returns the value of a key as JSON, with the keys inside it in the order of the file. If a
// part of the value cannot be written as JSON, it adds an error and returns nil.
func (r reader) json(node *yaml.Node, path string) []byte {
	if !r.plain(node, path) {
		return nil
	}
	before := len(r.f.faults.list)
	var out bytes.Buffer
	if err := json.Compact(&out, yamlfile.Flow(r.forJSON(node, path))); err != nil && len(r.f.faults.list) == before {
		r.f.faults.add(node, "%s: it has no form in JSON: %v", path, err)
	}
	if len(r.f.faults.list) > before {
		return nil
	}
	return out.Bytes()
}

// forJSON returns a copy of a YAML node that can be written as JSON: each key is a text, and each
// scalar is a text, a number, a boolean or null.
func (r reader) forJSON(node *yaml.Node, path string) *yaml.Node {
	if node.Kind == yaml.ScalarNode {
		return r.scalarForJSON(node, path)
	}
	changed := &yaml.Node{Kind: node.Kind}
	for i, child := range node.Content {
		switch {
		case node.Kind == yaml.SequenceNode:
			child = r.forJSON(child, fmt.Sprintf("%s[%d]", path, i))
		case i%2 == 0:
			child = textNode(child.Value)
		default:
			child = r.forJSON(child, dotted(path, node.Content[i-1].Value))
		}
		changed.Content = append(changed.Content, child)
	}
	return changed
}

// textNode returns a node for a text in quotes.
func textNode(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: yaml.DoubleQuotedStyle}
}

func (r reader) scalarForJSON(node *yaml.Node, path string) *yaml.Node {
	changed := &yaml.Node{Kind: yaml.ScalarNode}
	switch node.ShortTag() {
	case "!!null":
		changed.Value = "null"
	case "!!bool":
		changed.Value, _ = readBoolean(node)
	case "!!int":
		var ok bool
		if changed.Value, ok = readInteger(node); !ok {
			r.f.faults.add(node, "%s: %s is too large; put it in quotes, and read it as a text", path, seen(node))
		}
	case "!!float":
		n, ok := float(node)
		if !ok || math.IsInf(n, 0) || math.IsNaN(n) {
			r.f.faults.add(node, "%s: %s has no form in JSON; write a finite number", path, seen(node))
		}
		changed.Value = strconv.FormatFloat(n, 'g', -1, 64)
	default: // a text, or a date, which JSON writes as a text
		return textNode(node.Value)
	}
	return changed
}
