package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace"
	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/printable"
	"github.com/servetrace/servetrace/internal/yamlfile"
)

// settings are the operator's settings: the environment, which overrides the service file
// of SERVE_CONFIG.
type settings struct{ getenv func(string) string }

// OpenTelemetry's variables that disable tracing. A command ignores these variables if its
// arguments name the plugin.
const (
	envSDKDisabled    = "OTEL_SDK_DISABLED"
	envTracesExporter = "OTEL_TRACES_EXPORTER"
)

// list returns the configuration of the host in a service with this environment. If
// plugins is not empty, it replaces SERVE_TRACING_EXPORTER_PLUGIN, and the lists of
// processor plugins are empty.
func (s settings) list(plugins string) (host.Config, error) {
	if plugins == "" {
		return read(s.getenv)
	}
	return read(s.only(plugins).getenv)
}

// only returns the settings with plugins as the list of exporter plugins, and without
// processor plugins.
func (s settings) only(plugins string) settings {
	return settings{s.with(map[string]string{
		host.EnvPlugins: plugins, envSDKDisabled: "", envTracesExporter: "",
		host.EnvProcessors: "", host.EnvExporterProcessors: "", host.EnvProcessorFail: "",
	})}
}

// one returns the configuration of a host with where as the only plugin. where is a path, a
// bare name or an address. configFile has the plugin's own configuration. If configFile is empty, the file
// for the plugin's name in SERVE_TRACING_PLUGIN_CONFIG has it.
func (s settings) one(ctx context.Context, where, configFile string) (host.Config, error) {
	item, err := itemOf(where)
	if err != nil {
		return host.Config{}, err
	}
	name, entry, configs := item.name, item.String(), ""
	if configFile == "" {
		configs = settingOf(s.getenv(host.EnvPluginConfig), name, "=", "")
	}
	function := strings.HasPrefix(where, "python:")
	if is, err := strconv.ParseBool(strings.ToLower(s.getenv(host.EnvLockdown))); err == nil && is && !function {
		if entry, err = pinOf(ctx, s, name, entry); err != nil {
			return host.Config{}, err
		}
	}
	cfg, err := read(s.only(entry).with(map[string]string{
		host.EnvPluginConfig:      configs,
		host.EnvPluginEnv:         settingOf(s.getenv(host.EnvPluginEnv), name, ":", "*"),
		host.EnvPluginMemoryLimit: settingOf(s.getenv(host.EnvPluginMemoryLimit), name, "=", ""),
		host.EnvPluginMaxProcs:    settingOf(s.getenv(host.EnvPluginMaxProcs), name, "=", ""),
	}))
	if err != nil || configFile == "" {
		return cfg, err
	}
	document, err := readFile(ctx, "--config", configFile, nil, yamlfile.MaxBytes)
	if err != nil {
		return host.Config{}, err
	}
	cfg.PluginConfigs = map[string]host.PluginConfig{name: {Document: document}}
	if err := cfg.Validate(); err != nil {
		return host.Config{}, usagef("--config %s: %w", configFile, err)
	}
	return cfg, nil
}

// off returns the reason why the list of plugins is empty. plugins is the value of
// --plugins, or empty.
func (s settings) off(plugins string) string {
	file := strings.TrimSpace(s.getenv(servetrace.EnvConfig))
	listed := plugins != "" || strings.TrimSpace(s.getenv(host.EnvPlugins)) != ""
	switch {
	case file == "" && !listed:
		return host.EnvPlugins + " is not set, so tracing is off"
	case plugins == "" && strings.EqualFold(s.getenv(envSDKDisabled), "true"):
		return envSDKDisabled + "=" + s.getenv(envSDKDisabled) + ", so tracing is off"
	case plugins == "" && strings.EqualFold(s.getenv(envTracesExporter), "none"):
		return envTracesExporter + "=" + s.getenv(envTracesExporter) + ", so tracing is off"
	case !listed:
		if cfg, err := read(s.getenv); err == nil && cfg.Plugins == "" {
			return host.EnvPlugins + " is not set, and tracing_config.enabled is not true in " + printable.Text(file) + ", so tracing is off"
		}
	}
	return "the folders of the list have none"
}

// read returns the configuration of the host. Without a service file it reads only the
// host's variables, so that errors in other settings do not count.
func read(getenv func(string) string) (host.Config, error) {
	if strings.TrimSpace(getenv(servetrace.EnvConfig)) == "" {
		cfg, err := host.ConfigFromEnv(getenv)
		if err != nil {
			return host.Config{}, usagef("tracing settings: %w", err)
		}
		return cfg, nil
	}
	cfg, err := servetrace.LoadConfigFile("", getenv)
	if err != nil {
		return host.Config{}, usagef("settings: %w", err)
	}
	return cfg.Host, nil
}

// with returns a getenv function that returns the values of other first, and then the
// values of the settings.
func (s settings) with(other map[string]string) func(string) string {
	return func(name string) string {
		if value, ok := other[name]; ok {
			return value
		}
		return s.getenv(name)
	}
}

// settingOf returns the entries of a comma-separated setting that apply to one plugin. An
// entry begins with a plugin's name and sign. Entries with the name all apply to every
// plugin. If all is empty and sign is "=", entries without a name do.
func settingOf(setting, plugin, sign, all string) string {
	var left []string
	for item := range strings.SplitSeq(setting, ",") {
		item = strings.TrimSpace(item)
		name, _, named := strings.Cut(item, sign)
		if item != "" && (!named && all == "" && sign == "=" || named && (name == plugin || all != "" && name == all)) {
			left = append(left, item)
		}
	}
	return strings.Join(left, ",")
}

// entryName matches the names of plugins that the host accepts.
var entryName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// itemOf returns the item of a list of plugins for the argument PATH of a command. Its name
// is the name that a host gives the plugin, or "plugin" if that name is invalid.
func itemOf(where string) (pluginItem, error) {
	if strings.TrimSpace(where) == "" {
		return pluginItem{}, usagef("PATH is empty: want a path, a bare name, unix:// and the path of a socket, or python:MODULE:FUNCTION")
	}
	if text := escaped.FindString(where); text != "" {
		return pluginItem{}, usagef("PATH %q: a service could not name it, for in %s %s stands for another character; rename the file, or name a link to it",
			where, host.EnvPlugins, text)
	}
	if strings.HasPrefix(where, "python:") {
		return pluginItem{name: nameOfFunction(where), where: where}, nil
	}
	name := strings.TrimSuffix(filepath.Base(where), filepath.Ext(where))
	if !entryName.MatchString(name) {
		name = "plugin"
	}
	return pluginItem{name: name, where: escape.Replace(where)}, nil
}

// nameOfFunction returns the name that a host gives a plugin "python:MODULE:FUNCTION".
func nameOfFunction(where string) string {
	module := strings.TrimPrefix(where, "python:")
	module = module[:max(0, strings.LastIndexAny(module, ":."))]
	name := strings.TrimLeft(module[strings.LastIndexByte(module, '.')+1:], "_")
	if !entryName.MatchString(name) {
		return "python"
	}
	return name
}

// hint returns the error of an inspection. If no plugin folder has a bare name, but the
// working folder has a file of that name, hint adds the advice to write a path.
func hint(i host.Inspection) error {
	if i.Err == nil || i.Path != "" || strings.Contains(i.Where, "/") {
		return i.Err
	}
	if _, err := os.Stat(i.Where); err != nil {
		return i.Err
	}
	return fmt.Errorf("%w; for the file of that name in this folder, write ./%s", i.Err, i.Where)
}
