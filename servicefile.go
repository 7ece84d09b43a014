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

// LoadConfigFile reads the settings through getenv, which must behave like os.Getenv,
// and from the service file at path. The environment overrides the file, and the file
// overrides the defaults. An empty path means the value of SERVE_CONFIG; if that is
// empty too, only the environment is read. docs/reference/service-file.md lists the
// keys.
//
// A program that has a flag for the file passes the flag's value as path. A flag for another
// setting can be passed through getenv: it returns the flag's value for the variable of the
// setting, so that the value is checked. Or the program changes the returned Config.
//
// LoadConfigFile reads the file once. Later, the configuration of a plugin is read again
// whenever the plugin is configured, and the apps' settings at SIGHUP. These readers call
// getenv, too, possibly concurrently, so it must always return the same values.
//
// The error joins all errors. An error in the file has its line and column. Keys for other
// programs, such as Ray's cluster, cause a warning in Config.Tracing.
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
	if dir, err := filepath.Abs(filepath.Dir(path)); err == nil { // otherwise the modules of functions cannot be found by a relative path
		cfg.Host.PythonDir = dir
	}
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

// appsOf returns the apps' settings in the file, in the form of package serving.
func appsOf(file *servicefile.File) []serving.AppConfig {
	var apps []serving.AppConfig
	for _, a := range file.Apps {
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

// read returns the parsed service file and the settings without the plugins'
// configurations. The error joins all errors of the file and of the settings.
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

// checkPlugins checks that each plugin that the file configures is in the list of plugins.
// If the list comes from the environment, other plugins cause only a warning, so that an
// operator can disable a plugin for a while.
func checkPlugins(file *servicefile.File) {
	list, err := host.ConfigFromEnv(func(name string) string {
		switch name {
		case host.EnvPlugins, host.EnvProcessors, host.EnvExporterProcessors, tracing.EnvSDKDisabled, tracing.EnvTracesExporter:
			return file.Getenv(name)
		}
		return ""
	})
	if err != nil { // the function read reports it with the errors of all settings
		return
	}
	for _, name := range file.Plugins() {
		list.PluginConfigs = map[string]host.PluginConfig{name: {}}
		if err := list.Validate(); err != nil {
			file.Drop(name, err, file.FromEnv(host.EnvPlugins))
		}
	}
}

// envConsoleOutput is the variable for the output of the console plugin. It overrides the
// plugin's configuration.
const envConsoleOutput = "SERVE_CONSOLE_OUTPUT"

// addDocuments sets the configurations of the plugins from the file. A configuration in the
// environment takes precedence. If the file enables tracing and names no plugin, the console
// plugin runs and writes to the default folder for span files, unless another output is set.
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

// pick returns a function that gets the current content of the file and returns the
// configuration of the plugin with the name. If any part of the file is invalid, the function
// returns an error, because the file may be half written.
func pick(path string, getenv func(string) string, name, folder string) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		file, _, err := read(path, data, getenv)
		if err != nil {
			return nil, err
		}
		return file.Document(name, folder), nil
	}
}

// makeSpanFolder creates the default folder for span files, accessible for its owner only. If
// the console plugin created it, the group could read it, too. An existing folder is not
// changed. If the folder cannot be created, a warning names the variables to set. The error
// of the plugin would name a key that the service file does not contain.
func (s *service) makeSpanFolder() {
	if s.cfg.SpanFolder == "" {
		return
	}
	if err := os.MkdirAll(s.cfg.SpanFolder, 0o700); err != nil {
		s.log.Warn("cannot create the folder for span files; set a writable folder with "+envConsoleOutput+
			", or set XDG_STATE_HOME or HOME", "span_files", s.cfg.SpanFolder, "error", err)
	}
}

// spanFolder returns the path of the default folder for span files. The path is absolute,
// unless the working directory is unknown.
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
