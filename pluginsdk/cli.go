package pluginsdk

import (
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

const sdkName = "github.com/servetrace/servetrace/pluginsdk"

// answerByHand handles a flag such as --help, or prints the usage text if no host started
// the plugin. It returns true if the process then has nothing else to do.
func answerByHand(env Env, spec Spec) (handled bool, err error) {
	switch flagOf(env) {
	case "--version":
		_, err = fmt.Fprintf(env.Stdout, "%s %s\n", spec.Name, spec.version())
		return true, err
	case "--describe":
		return true, describe(env.Stdout, spec)
	case "--help", "-h":
		_, err = io.WriteString(env.Stdout, help(env, spec))
		return true, err
	}
	if hosted(env) {
		return false, nil
	}
	if len(env.Args) > 1 {
		return true, fmt.Errorf("argument %q is unknown: try --help", env.Args[1])
	}
	if _, err := io.WriteString(env.Stderr, greeting(env, spec)); err != nil {
		return true, err
	}
	return true, ErrNotHosted
}

// flagOf returns the first argument if it is a flag that answerByHand handles, and
// otherwise "".
func flagOf(env Env) string {
	if len(env.Args) < 2 {
		return ""
	}
	switch flag := env.Args[1]; flag {
	case "--version", "--describe", "--help", "-h":
		return flag
	}
	return ""
}

// greeting returns the text that describes the plugin and shows how to use it.
func greeting(env Env, spec Spec) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", spec.Name, spec.version())
	if spec.Description != "" {
		fmt.Fprintf(&b, ": %s", spec.Description)
	}
	list := spec.listVariable() + "=" + program(env, spec)
	purpose := "an exporter plugin of servetrace. It does nothing on its own: a service\nstarts it, and sends it the service's spans."
	if spec.isProcessor() {
		purpose = "a processor plugin of servetrace. It does nothing on its own: a service\nstarts it, and exports the service's spans as it returns them."
		list += " " + exporterVariable + "=console" // a processor plugin alone does nothing, because without an exporter tracing is off
	}
	fmt.Fprintf(&b, `

This is %s Name it where the service starts:

    %s your-service

`, purpose, list)
	return b.String()
}

// help returns the output of --help: the greeting, the variables and the flags.
func help(env Env, spec Spec) string {
	var b strings.Builder
	b.WriteString(greeting(env, spec))
	if len(spec.Env) > 0 {
		fmt.Fprintf(&b, "It reads these variables of the service's environment:\n\n    %s\n\n", strings.Join(spec.Env, "\n    "))
	}
	b.WriteString(`Flags:

    --version    print name and version
    --describe   print what a host is told, as JSON
    --help       print this

    --listen ADDR [--debug] [--config FILE]
                 serve hosts that attach, on a Unix socket at ADDR, a path or
                 unix:///PATH, until SIGINT or SIGTERM; print the setting that
                 names it. For a debugger: with --debug the deadlines of calls
                 count for nothing. FILE is the configuration document.
`)
	return b.String()
}

// program returns the absolute path of the plugin, escaped for the variable in which an
// operator lists plugins.
func program(env Env, spec Spec) string {
	if len(env.Args) == 0 || env.Args[0] == "" {
		return "./" + spec.Name
	}
	path := env.Args[0]
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return escapeForList(path)
}

// escapeForList escapes the characters of a path that separate the parts of the
// operator's list of plugins.
func escapeForList(path string) string {
	return strings.NewReplacer(",", "%2C", "=", "%3D", "@", "%40").Replace(path)
}

// description is the response of Describe in JSON. Its keys are the names of the fields
// in plugin.proto.
type description struct {
	Name        string         `json:"name"`
	Version     string         `json:"version"`
	Description string         `json:"description,omitempty"`
	Kind        string         `json:"kind"`
	SDK         sdkDescription `json:"sdk"`
	Limits      limits         `json:"limits"`
	EnvPatterns []string       `json:"env_patterns"`
	EnvAtStart  bool           `json:"env_at_start,omitempty"`
}

type sdkDescription struct {
	Name     string `json:"name"`
	Version  string `json:"version"`
	Language string `json:"language"`
}

type limits struct {
	MaxBatchSpans  int `json:"max_batch_spans"`
	MaxBatchBytes  int `json:"max_batch_bytes"`
	MaxConcurrency int `json:"max_concurrency"`
}

// describe writes the Spec as indented JSON, for the flag --describe.
func describe(w io.Writer, spec Spec) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(description{
		Name:        spec.Name,
		Version:     spec.version(),
		Description: spec.Description,
		Kind:        spec.kind(),
		SDK:         sdkDescription{sdkName, Version(), "go"},
		Limits:      limits(spec.Limits),
		EnvPatterns: append([]string{}, spec.Env...),
		EnvAtStart:  spec.EnvAtStart,
	})
}
