package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/servetrace/servetrace/host"
)

// settings are the operator's, as the environment has them.
type settings struct{ getenv func(string) string }

// The variables by which OpenTelemetry switches tracing off. A question about a
// plugin that was named by hand is answered all the same.
const (
	envSDKDisabled    = "OTEL_SDK_DISABLED"
	envTracesExporter = "OTEL_TRACES_EXPORTER"
)

// config is that of the host in a service with this environment. A list that is
// not empty stands in for SERVE_TRACING_EXPORTER_PLUGIN.
func (s settings) config(list string) (host.Config, error) {
	getenv := s.getenv
	if list != "" {
		getenv = s.with(map[string]string{host.EnvPlugins: list, envSDKDisabled: "", envTracesExporter: ""})
	}
	cfg, err := host.ConfigFromEnv(getenv)
	if err != nil {
		return host.Config{}, usagef("tracing settings: %w", err)
	}
	return cfg, nil
}

// with is the environment with some variables set to other values.
func (s settings) with(other map[string]string) func(string) string {
	return func(name string) string {
		if value, ok := other[name]; ok {
			return value
		}
		return s.getenv(name)
	}
}

// entryName is what the host takes as an entry's name.
var entryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// escapes are the characters that have a meaning in the list of plugins.
var escapes = strings.NewReplacer(",", "%2C", "=", "%3D", "@", "%40")

// entryOf writes one path, bare name or address as an entry of the list. Its
// name is the file's, as in the host, or "plugin" where that can not be a name.
func entryOf(where string) (name, entry string, err error) {
	if strings.TrimSpace(where) == "" {
		return "", "", usagef("PATH is empty: want a path, a bare name, or unix:// and the path of a socket")
	}
	name = strings.TrimSuffix(filepath.Base(where), filepath.Ext(where))
	if !entryName.MatchString(name) {
		name = "plugin"
	}
	return name, fmt.Sprintf("%s=%s", name, escapes.Replace(where)), nil
}
