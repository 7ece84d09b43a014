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
// A program with a flag for the file passes its value as path. For a flag that sets
// something else, pass a getenv that returns the flag's value for the variable of the
// setting, so that the value is checked. Or change the returned Config.
//
// The file is read once, with two exceptions: the configurations of plugins are read
// again whenever a plugin is configured, and the apps' settings at SIGHUP. getenv is
// called then, too, possibly concurrently, and must return the same values. All errors
// are reported at once, errors in the file with their line and column. Keys for other
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

// checkPlugins checks that the plugins configured in the file are in the plugin list.
// If the list comes from the environment, the file may configure more plugins, so that
// a plugin can be disabled for a while.
func checkPlugins(file *servicefile.File) {
	list, err := host.ConfigFromEnv(func(name string) string {
		switch name {
		case host.EnvPlugins, host.EnvProcessors, host.EnvExporterProcessors, tracing.EnvSDKDisabled, tracing.EnvTracesExporter:
			return file.Getenv(name)
		}
		return ""
	})
	if err != nil { // reported with the other settings
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

// addDocuments sets the plugins' configurations from the file, except if the environment
// sets them. If the console plugin runs because the file names no other plugin, its
// output is the folder for span files, unless the output is set elsewhere.
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

// pick returns a function that reads a plugin's configuration from the current content of
// the file. If the file is invalid anywhere, the function returns an error: the file may
// be half written, and a service would not start with it.
func pick(path string, getenv func(string) string, name, folder string) func([]byte) ([]byte, error) {
	return func(data []byte) ([]byte, error) {
		file, _, err := read(path, data, getenv)
		if err != nil {
			return nil, err
		}
		return file.Document(name, folder), nil
	}
}

// makeSpanFolder creates the default folder of span files with a mode for its owner
// only; the console plugin would admit its group, too. An existing folder is unchanged.
// If it cannot be created, a warning names the variables, because the plugin's error
// would name a key that the service file does not have.
func (s *service) makeSpanFolder() {
	if s.cfg.SpanFolder == "" {
		return
	}
	if err := os.MkdirAll(s.cfg.SpanFolder, 0o700); err != nil {
		s.log.Warn("cannot create the folder for span files; set a writable folder with "+envConsoleOutput+
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
