package settings

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/spelling"
)

// stockPlugins lists variables of plugins in this repository that have the same prefix as
// settings of the runtime.
var stockPlugins = []string{"SERVE_CONSOLE_FORMAT", "SERVE_CONSOLE_OUTPUT", "SERVE_DATADOG_MODE", "SERVE_RAY_CONTEXT"}

// rayVariables maps the variables that configure tracing in Ray Serve and on Anyscale to
// their counterparts here, with the form of the value if it differs. The other variables
// of Ray and Anyscale have no counterpart.
var rayVariables = map[string]string{
	"ANYSCALE_TRACING_EXPORTER_IMPORT_PATH":  "SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION",
	"ANYSCALE_TRACING_SAMPLING_RATIO":        "SERVE_TRACING_SAMPLING_RATIO",
	"RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": "SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION",
	"RAY_SERVE_TRACING_SAMPLING_RATIO":       "SERVE_TRACING_SAMPLING_RATIO",
}

const maxSuggestions = 3

// Variable is an environment variable that has a value although no code reads it.
type Variable struct {
	Name string
	// Instead lists the variables that may have been meant, at most three, in the order in
	// which the runtime reads them. It may be nil.
	Instead []string
	ofRay   bool
}

// Warnings returns sentences about the variables for operators: first one about all
// variables of Ray, if there are any, then one about each other variable. reason is a
// clause such as "no plugin reads this variable". The sentences omit the values, which
// may be secrets.
func Warnings(variables []Variable, reason string) []string {
	var list, ofRay, instead []string
	for _, v := range variables {
		text := v.Name + ": " + reason
		if v.ofRay {
			ofRay = append(ofRay, v.Name)
			instead = append(instead, v.Instead...)
			continue
		}
		if len(v.Instead) > 0 {
			text += "; did you mean " + strings.Join(v.Instead, " or ") + "?"
		}
		list = append(list, text)
	}
	if len(ofRay) == 0 {
		return list
	}
	text := strings.Join(ofRay, ", ") + ": Ray's settings have no effect here"
	if slices.Sort(instead); len(instead) > 0 {
		text += "; set " + strings.Join(slices.Compact(instead), " and ")
	}
	return slices.Insert(list, 0, text)
}

// Unread returns the variables of environ ("KEY=value") that look like settings of the
// runtime although no code reads them, sorted by name. load reads the settings of the
// runtime through getenv. granted holds the variables of each plugin; an entry is a
// name, or a prefix and a star.
//
// Unread omits empty variables, the variables of stock plugins, and the variables that
// Kubernetes sets in each pod for a Service named "serve…".
func Unread(environ []string, load func(getenv func(string) string), granted map[string][]string) []Variable {
	known := slices.Concat(names(load), stockPlugins)
	patterns := slices.Concat(slices.Collect(maps.Values(granted))...)
	values := map[string]string{}
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); value != "" {
			values[name] = value
		}
	}
	var unread []Variable
	for name, value := range values {
		switch {
		case slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) }):
		case isRayVariable(name):
			v := Variable{Name: name, ofRay: true}
			if instead, ok := rayVariables[name]; ok {
				v.Instead = []string{instead}
			}
			unread = append(unread, v)
		case strings.HasPrefix(name, "SERVE_") && !slices.Contains(known, name) && !isKubernetes(name, value, values):
			unread = append(unread, Variable{Name: name, Instead: nearest(name, known)})
		}
	}
	slices.SortFunc(unread, func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
	return unread
}

// names returns the variables that load asks for, each once, in the order of the first
// call. load gets only empty values.
func names(load func(getenv func(string) string)) []string {
	var asked []string
	load(func(name string) string {
		if !slices.Contains(asked, name) {
			asked = append(asked, name)
		}
		return ""
	})
	return asked
}

func matches(pattern, name string) bool {
	prefix, family := strings.CutSuffix(pattern, "*")
	return pattern == name || family && strings.HasPrefix(name, prefix)
}

func isRayVariable(name string) bool {
	return strings.HasPrefix(name, "RAY_SERVE_TRACING_") || strings.HasPrefix(name, "ANYSCALE_TRACING_")
}

// kubernetesPort matches the end of the variables that Kubernetes sets for a port of a
// Service, in the form of Docker links.
var kubernetesPort = regexp.MustCompile(`_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// isKubernetes reports whether Kubernetes has set the variable for a Service. For a
// Service "serve-x", Kubernetes always sets SERVE_X_SERVICE_HOST, too.
func isKubernetes(name, value string, values map[string]string) bool {
	const host = "_SERVICE_HOST"
	service, isHost := strings.CutSuffix(name, host)
	if before, _, found := strings.Cut(name, "_SERVICE_PORT"); found {
		service = before
	} else if at := kubernetesPort.FindStringIndex(name); at != nil && (name[at[0]:] != "_PORT" || strings.Contains(value, "://")) {
		service = name[:at[0]]
	}
	return isHost || values[service+host] != ""
}

// nearest returns the known names that may have been meant by name. It prefers the known
// name that differs by a few letters. If there is none, it returns the names that contain
// all words of name and the fewest other words, or none if there are too many.
func nearest(name string, known []string) []string {
	if one := spelling.Nearest(name, known); one != "" {
		return []string{one}
	}
	var best []string
	fewest := 0
	words := strings.Split(name, "_")
	for _, candidate := range known {
		its := strings.Split(candidate, "_")
		missing := func(word string) bool { return !slices.Contains(its, word) }
		if !strings.HasPrefix(candidate, "SERVE_") || len(words) < 2 || slices.ContainsFunc(words, missing) {
			continue
		}
		if len(best) == 0 || len(its) < fewest {
			best, fewest = nil, len(its)
		}
		if len(its) == fewest {
			best = append(best, candidate)
		}
	}
	if len(best) > maxSuggestions {
		return nil
	}
	return best
}
