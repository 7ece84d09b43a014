package servetrace

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/servetrace/servetrace/host"
	"github.com/servetrace/servetrace/internal/servicefile"
	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// EnvConfig is the variable with the path of the service file.
const EnvConfig = "SERVE_CONFIG"

// LoadConfigFile reads the settings by getenv, which answers as os.Getenv does,
// and from the service file at path under them: what the environment says goes
// over the file, and the file over the defaults. An empty path is that of
// SERVE_CONFIG; without one there is only the environment. docs/reference/service-file.md
// has the keys.
//
// A program whose flag names the file gives its value as path. Where a flag has
// another setting, give a getenv that answers with it for the setting's variable,
// and all rules are the same; or change the Config.
//
// The file is read once, but for the documents of plugins, which are read anew
// each time a plugin is configured, and for its applications, which are at
// SIGHUP; getenv is called then too, by several
// goroutines at a time, and must go on giving the same. All faults are reported
// at once, those of the file with their line and column. What the file has for
// somebody else, Ray's cluster say, is a warning in Config.Tracing.
func LoadConfigFile(path string, getenv func(string) string) (Config, error) {
	if path == "" {
		path = strings.TrimSpace(getenv(EnvConfig))
	}
	if path == "" {
		return ConfigFromEnv(getenv)
	}
	data, err := servicefile.Read(path)
	if err != nil {
		return Config{}, err
	}
	file, cfg, err := read(path, data, getenv)
	if err != nil {
		return Config{}, err
	}
	cfg.File = file.Name
	cfg.Tracing.Warnings = append(cfg.Tracing.Warnings, file.Warnings...)
	cfg.addDocuments(file, getenv)
	cfg.Serving.Apps = appsOf(file)
	cfg.readApps = func() ([]serving.AppConfig, error) {
		data, err := servicefile.Read(path)
		if err != nil {
			return nil, err
		}
		file, _, err := read(path, data, getenv)
		return appsOf(file), err
	}
	return cfg, nil
}

// appsOf is what a file says of the apps.
func appsOf(file *servicefile.File) []serving.AppConfig {
	var apps []serving.AppConfig
	for _, a := range file.Apps() {
		app := serving.AppConfig{Name: a.Name, RoutePrefix: a.RoutePrefix, From: a.Place}
		for _, d := range a.Deployments {
			c := serving.DeploymentConfig{
				Name:                     d.Name,
				NumReplicas:              d.NumReplicas,
				MaxOngoingRequests:       d.MaxOngoingRequests,
				MaxQueuedRequests:        d.MaxQueuedRequests,
				GracefulShutdownWaitLoop: d.GracefulShutdownWaitLoop,
				GracefulShutdownTimeout:  d.GracefulShutdownTimeout,
				HealthCheckPeriod:        d.HealthCheckPeriod,
				HealthCheckTimeout:       d.HealthCheckTimeout,
				From:                     d.Place,
			}
			if d.UserConfig != nil {
				c.UserConfig = d.UserConfig
			}
			app.Deployments = append(app.Deployments, c)
		}
		apps = append(apps, app)
	}
	return apps
}

// read is the file, and the settings but for the documents. The error has all
// that is wrong with either.
func read(path string, data []byte, getenv func(string) string) (*servicefile.File, Config, error) {
	file := servicefile.Parse(path, data, getenv)
	file.Try(func(getenv func(string) string) error {
		_, err := ConfigFromEnv(getenv)
		return err
	})
	checkPlugins(file)
	cfg, err := ConfigFromEnv(file.Getenv)
	err = file.Place(err)
	return file, cfg, errors.Join(file.Err(), err)
}

// checkPlugins holds the plugins that the file says something of against the
// list. Where the list is the environment's, the file may have more: that is how
// one of its plugins is switched off for a while.
func checkPlugins(file *servicefile.File) {
	list, err := host.ConfigFromEnv(func(name string) string {
		switch name {
		case host.EnvPlugins, tracing.EnvSDKDisabled, tracing.EnvTracesExporter:
			return file.Getenv(name)
		}
		return ""
	})
	if err != nil { // it is told with the other settings
		return
	}
	for _, name := range file.Plugins() {
		list.PluginConfigs = map[string]host.PluginConfig{name: {}}
		if err := list.Validate(); err != nil {
			file.Drop(name, err, file.FromEnv(host.EnvPlugins))
		}
	}
}

// envConsoleOutput is the console plugin's own variable, which goes over its
// document.
const envConsoleOutput = "SERVE_CONSOLE_OUTPUT"

// addDocuments gives the plugins the documents that the file has for them, as
// far as the environment has none. The console plugin that runs because the file
// names no other gets the folder for span files, unless somebody has told it
// where to write.
func (c *Config) addDocuments(file *servicefile.File, getenv func(string) string) {
	configs := maps.Clone(c.Host.PluginConfigs)
	if configs == nil {
		configs = map[string]host.PluginConfig{}
	}
	add := func(name, folder string) {
		if _, own := configs[name]; !own && file.Document(name, folder) != nil {
			configs[name] = host.PluginConfig{File: file.Name, Pick: pick(file.Name, getenv, name, folder)}
		}
	}
	_, own := configs[servicefile.DefaultPlugin]
	byFile := c.Host.Plugins != "" && file.SpanFiles() && !file.FromEnv(host.EnvPlugins)
	if byFile && !own && !file.FromEnv(envConsoleOutput) && !file.HasOutput(servicefile.DefaultPlugin) {
		c.SpanFolder = spanFolder(file.Getenv)
		add(servicefile.DefaultPlugin, c.SpanFolder)
	}
	for _, name := range file.Plugins() {
		add(name, "")
	}
	if len(configs) > 0 {
		c.Host.PluginConfigs = configs
	}
}

// pick takes a plugin's document out of the file as it is then. A file that has
// become wrong gives none, wherever it is wrong: who wrote it may not have
// finished, and a service would not start with it.
func pick(path string, getenv func(string) string, name, folder string) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		file, _, err := read(path, data, getenv)
		if err != nil {
			return nil, err
		}
		return file.Document(name, folder), nil
	}
}

// makeSpanFolder makes the default folder of span files with a mode that lets only
// its owner in; the console plugin would let its group in too. An existing folder
// stays as it is. If the folder cannot be made, it warns and names the variables,
// because the plugin's error is about a key that the service file does not have.
func (s *service) makeSpanFolder() {
	if s.cfg.SpanFolder == "" {
		return
	}
	if err := os.MkdirAll(s.cfg.SpanFolder, 0o700); err != nil {
		s.log.Warn("the folder for span files cannot be made; name a writable one with "+envConsoleOutput+
			", or set XDG_STATE_HOME or HOME", "span_files", s.cfg.SpanFolder, "error", err)
	}
}

// spanFolder returns the default folder of span files. It is absolute, unless the
// working directory is unknown.
func spanFolder(getenv func(string) string) string {
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "servetrace", "spans")
	}
	if dir := getenv("HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, ".local", "state", "servetrace", "spans")
	}
	if dir, err := filepath.Abs("servetrace-spans"); err == nil {
		return dir
	}
	return "./servetrace-spans"
}
