package servicefile

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/yamlfile"
)

// FromDefault is the value of Setting.From if neither the environment nor the file has a value.
const FromDefault = "default"

// Setting is the value of one key and its origin.
type Setting struct {
	// Key is the path of the key. Variable is the variable that overrides the key, or
	// empty.
	Key      string `json:"key"`
	Variable string `json:"variable,omitempty"`
	// Value is the value in effect, in the form of the variable. It is empty if there is none.
	Value string `json:"value"`
	// From is FromDefault, "environment VARIABLE", or the file with a line.
	From string `json:"from"`
}

// Settings returns a setting for each key of the table, in the order of the table. Keys of
// plugins and of applications have a setting only if the file sets them. The
// value of a configuration is shown as its length, because it may contain secrets.
func (f *File) Settings() []Setting {
	var list []Setting
	for _, k := range keys {
		switch {
		case strings.Contains(k.Path, anyName):
			list = append(list, f.ofPlugins(k)...)
		case !strings.HasPrefix(k.Path, wordApps):
			list = append(list, f.setting(k))
		}
	}
	for _, v := range f.values {
		if strings.HasPrefix(v.path, wordApps) {
			list = append(list, v.inFile(f.Name))
		}
	}
	return list
}

// inFile returns the setting for a value in the file.
func (v value) inFile(file string) Setting {
	s := Setting{Key: v.path, Variable: v.key.Variable, Value: v.text, From: fmt.Sprintf("%s:%d", file, v.at.Line)}
	if v.key.Path == pathDocument || v.key.Path == pathUserConfig {
		s.Value = fmt.Sprintf("<%d bytes>", len(bytes.TrimSpace(yamlfile.Flow(v.at))))
	}
	return s
}

// ofPlugins returns the settings for a key of plugins, one for each plugin that has the key.
func (f *File) ofPlugins(k Key) []Setting {
	var list []Setting
	for _, p := range f.plugins {
		path := strings.Replace(k.Path, anyName, p.name, 1)
		v := f.find(path)
		if k.Path == pathDocument && p.config != nil {
			v = &value{key: &k, path: path, at: p.config}
		}
		switch {
		case v == nil:
		case names(f.env(k.Variable), k.join, p.name):
			list = append(list, Setting{path, k.Variable, f.env(k.Variable), "environment " + k.Variable})
		default:
			list = append(list, v.inFile(f.Name))
		}
	}
	return list
}

// setting returns the setting for a key that is neither a plugin's nor an application's.
func (f *File) setting(k Key) Setting {
	is := Setting{Key: k.Path, Variable: k.Variable, Value: k.Default, From: FromDefault}
	if k.atMost != "" {
		is.Value += ", at most " + k.atMost
	}
	if k.Variable == "" { // tracing_config.enabled
		if by := disabledBy(f.env); by != "" {
			return Setting{Key: k.Path, Variable: by, Value: "false", From: "environment " + by}
		}
		if v := f.find(k.Path); v != nil {
			return v.inFile(f.Name)
		}
		return is
	}
	if k.Path == pathFunction && f.find(pathFunction) == nil {
		return is // the setting for exporter_plugin shows the value of the variable
	}
	own, here := strings.TrimSpace(f.env(k.Variable)), f.find(k.Path)
	text, from := f.of(k.Variable)
	switch {
	case own != "":
		is.Value, is.From = own, "environment "+k.Variable
	case here != nil && from != nil:
		is = here.inFile(f.Name) // not text, in which several keys with the same variable are joined
	case from != nil && from.key.Path == pathEnabled:
		is.Value, is.From = text, from.inFile(f.Name).From
	case k.over != nil && k.over(f.env) != "":
		is.Variable = k.over(f.env)
		is.Value, is.From = f.env(is.Variable), "environment "+is.Variable
		if arg := f.env(envSamplerArg); arg != "" && is.Variable == envSampler && strings.HasSuffix(strings.ToLower(is.Value), "ratio") {
			is.Value += ", " + envSamplerArg + "=" + arg
		}
	}
	if k.secret && is.Value != "" {
		is.Value = redacted
	}
	return is
}

// redacted is the value that is shown for a credential.
const redacted = "<redacted>"

// Idle returns a warning if the environment or the file names plugins, but tracing is not
// enabled, so that no plugin starts. Otherwise it returns "".
func (f *File) Idle() string {
	on, set := f.Enabled()
	inEnv := strings.TrimSpace(f.env(EnvPlugins)) != ""
	inFile := slices.ContainsFunc(f.values, func(v value) bool { return v.key.Variable == EnvPlugins && v.text != "" })
	by := disabledBy(f.env)
	switch {
	case !inEnv && !inFile && len(f.plugins) == 0:
		return ""
	case by != "":
		return fmt.Sprintf("%s=%s: tracing is disabled, so no plugin starts; unset the variable to start plugins", by, strings.TrimSpace(f.env(by)))
	case f.Getenv(EnvPlugins) != "":
		return ""
	case set && !on:
		return f.faults.at(f.find(pathEnabled).at, pathEnabled+" is false, so no plugin starts; set it to true to start plugins").Error()
	}
	return f.faults.at(f.plugins[0].at, pathPlugins+" starts no plugin; list the plugins in "+pathExporter).Error()
}

// disabledBy returns the OpenTelemetry variable that disables tracing in the environment, or "" if
// there is none.
func disabledBy(getenv func(string) string) string {
	switch {
	case strings.EqualFold(strings.TrimSpace(getenv(envSDKDisabled)), "true"):
		return envSDKDisabled
	case strings.EqualFold(strings.TrimSpace(getenv(envTracesExporter)), "none"):
		return envTracesExporter
	}
	return ""
}
