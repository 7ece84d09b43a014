package settings

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/spelling"
)

// stockPlugins has the variables that plugins of this repository read and that begin with
// SERVE_, like the settings of the runtime.
var stockPlugins = []string{"SERVE_CONSOLE_FORMAT", "SERVE_CONSOLE_OUTPUT", "SERVE_DATADOG_MODE", "SERVE_RAY_CONTEXT"}

// rayVariables maps variables that configure tracing in Ray Serve and on Anyscale to the
// variables that have the same effect here. If the form of the value differs, it follows the
// name. Other variables of Ray and Anyscale have no counterpart.
var rayVariables = map[string]string{
	"ANYSCALE_TRACING_EXPORTER_IMPORT_PATH":  "SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION",
	"ANYSCALE_TRACING_SAMPLING_RATIO":        "SERVE_TRACING_SAMPLING_RATIO",
	"RAY_SERVE_TRACING_EXPORTER_IMPORT_PATH": "SERVE_TRACING_EXPORTER_PLUGIN=python:MODULE:FUNCTION",
	"RAY_SERVE_TRACING_SAMPLING_RATIO":       "SERVE_TRACING_SAMPLING_RATIO",
}

// maxSuggestions is the largest number of variables that a warning suggests.
const maxSuggestions = 3

// Variable is an environment variable that has a value although no code reads it.
type Variable struct {
	Name string
	// Instead has the variables that may have been meant, at most three, in the order in which
	// the runtime reads them. It may be nil.
	Instead []string
	ofRay   bool // the variable is a setting of Ray Serve or Anyscale
}

// Warnings returns warnings about the variables, for operators. The first is about all
// variables of Ray together, if there are any. Then each other variable has a warning.
// reason is a clause such as "no plugin reads this variable". The warnings do not contain
// the values of the variables, because the values may be secrets.
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
// runtime although no code reads them, sorted by name. load must read all settings of the
// runtime through getenv. granted has the variables that each plugin reads: each entry is a
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

// names returns the variables for which load calls getenv, each once, in the order of the
// calls. getenv returns "" for each.
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

// matches reports whether a pattern, a name or a prefix and a star, includes the name.
func matches(pattern, name string) bool {
	prefix, family := strings.CutSuffix(pattern, "*")
	return pattern == name || family && strings.HasPrefix(name, prefix)
}

// isRayVariable reports whether the variable configures tracing in Ray Serve or on Anyscale.
func isRayVariable(name string) bool {
	return strings.HasPrefix(name, "RAY_SERVE_TRACING_") || strings.HasPrefix(name, "ANYSCALE_TRACING_")
}

// kubernetesPort matches the end of the variables that Kubernetes sets for a port of a
// Service, in the form of Docker links.
var kubernetesPort = regexp.MustCompile(`_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

// isKubernetes reports whether Kubernetes has set the variable for a Service. If the variable
// is for a Service "serve-x", values also has SERVE_X_SERVICE_HOST.
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

// nearest returns the known names that the unknown name may stand for. If a known name differs
// by a few letters, it returns this name. Otherwise it returns the known names that contain
// all words of name, and among them those with the fewest words. If they are more than
// maxSuggestions, it returns none.
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
