package host

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
)

// Config holds an operator's settings. The zero value of a field means its default. New
// reads the Config once.
type Config struct {
	// Plugins is the list of exporter plugins in the form of SERVE_TRACING_EXPORTER_PLUGIN:
	// entries separated by commas. An entry has one of these forms: a path to an executable
	// (it contains a slash); a bare name, which is looked up in PluginDirs; the address of
	// a socket ("unix:///run/p.sock") at which a plugin listens that another program has
	// started; an exporter function of Ray Serve
	// ("python:exporter:default_tracing_exporter"), which the interpreter of Python runs; a
	// folder (it should end in a slash), which stands for its executables in the order of
	// their names.
	//
	// An entry may begin with a name of its own ("traces=./p"). A path or a bare name may
	// end in a pin, "@sha256:" and 64 hexadecimal digits: the file runs only if it has that
	// digest. A comma, an equals sign and an at sign in a path are written %2C, %3D and
	// %40. If Plugins is empty, the Host does nothing.
	Plugins string
	// Processors is the list of processor plugins, in the form of Plugins, except for
	// functions in Python. Each batch passes all of them in order, before the Host sends it
	// to the exporters. If Plugins is empty, no processor runs. Names are unique over all
	// lists.
	Processors string
	// ExporterProcessors are the processors of single exporters. The key is the exporter's
	// name in Plugins. The value has the form of Processors, without folders. The map is
	// copied by New.
	ExporterProcessors map[string]string
	// ProcessorFailOpen is true for processors that fail open, by their names; "" stands
	// for all other processors. If such a processor refuses a batch, or has not processed
	// it within ExportTimeout, the batch goes on unprocessed. So does a batch that the Host
	// would otherwise drop. Any other processor fails closed: the spans wait for it, and
	// are dropped for the same reasons as an exporter's spans. The map is copied by New.
	ProcessorFailOpen map[string]bool
	// PluginDirs are the folders in which bare names are looked up, in order. Default: the
	// folder "plugins" beside the executable, /usr/local/lib/servetrace/plugins and
	// /usr/lib/servetrace/plugins.
	PluginDirs []string
	// QueueBytes bounds the memory of spans that wait in this process, ended
	// spans and encoded batches together. Default 32 MiB, at least 1 MiB.
	QueueBytes int64
	// MaxSpanBytes is the size above which a span is refused. Default 1 MiB, or a quarter
	// of QueueBytes if that is less. It must be at most that quarter, and at most 3 MiB, so
	// that a batch of one span fits any gRPC server.
	MaxSpanBytes int
	// BatchAge is the longest time that a span waits until its batch is sealed. Default 200
	// ms.
	BatchAge time.Duration
	// BatchSpans is the largest number of spans in a batch. Default 2048.
	BatchSpans int
	// BatchBytes is the encoded size at which a batch is sealed. It must be at most 3 MiB,
	// and at most a quarter of QueueBytes. Default 768 KiB, or that quarter if it is less.
	BatchBytes int
	// ExportTimeout is the deadline of one call to a plugin. Default 10 s.
	ExportTimeout time.Duration
	// MaxAge is the age at which the Host drops a batch that is not delivered. Until then
	// it repeats failed calls. The age counts from the sealing of the batch, and includes
	// time in which no process runs. Default 60 s, or 24 h with a SpoolDir.
	MaxAge time.Duration
	// StartTimeout bounds the start of a plugin, from its launch to the answer to
	// Configure. For an attached plugin it is the time from dialling to the answer to
	// Describe. Default 10 s.
	StartTimeout time.Duration
	// StopTimeout bounds Shutdown: 60 % to send the rest of the spans, 30 % for the plugins
	// to end by themselves, the rest to kill them. Default 5 s.
	StopTimeout time.Duration
	// Context is the description of this process for the plugins.
	Context Context
	// PluginConfigs are the configurations of plugins, by their names in the list; a plugin
	// that is not in the map gets no configuration. A name that is not in the list is a
	// fault, unless the list is empty or a folder may contain the plugin. The name of an
	// attached plugin is a fault, too. The map is copied by New.
	PluginConfigs map[string]PluginConfig
	// CrashDir is the folder for reports of crashes and for quarantined batches. It is
	// made with mode 0700 when it is first used. Default: none, and nothing is kept.
	CrashDir string
	// SpoolDir is the folder of the spool, which has files with all batches that are not
	// delivered yet. If the process is killed, the next Host with this folder sends its
	// batches. It is made with mode 0700 when it is first used. Several processes of the
	// same service may share it. Services with other plugins must have another folder,
	// because a Host drops the batches for plugins that are not in its list. Default: none,
	// and spans are in memory only.
	SpoolDir string
	// SpoolBytes bounds the files of this Host in SpoolDir. Default 1 GiB, at least 8 MiB. If
	// the oldest file of an ended process is larger than the bound, the Host sends the
	// batches of this file in addition.
	SpoolBytes int64
	// Lockdown restricts plugins to programs and variables that the operator has named.
	// Each entry of the list must have a pin and be an absolute path or a bare name, so
	// neither folders nor addresses are allowed. A plugin gets the variables that every
	// plugin has (such as PATH) and the variables that PluginEnv names. It gets no others,
	// even if it declares them, and its configuration cannot refer to others (${env:NAME}).
	Lockdown bool
	// PluginEnv grants plugins further variables of Environ, which they have when they
	// start. A key is the name of a plugin in the list, or "*" for all plugins. A value
	// holds names of variables, or prefixes with a star ("AWS_*"). A prefix has three
	// characters or more and ends in an underscore. Keys are compared with the list as for
	// PluginConfigs. New copies the map.
	PluginEnv map[string][]string
	// AllowWritable allows an executable that users other than its owner may change, or
	// that is in a folder that they may change. By default such an executable is refused,
	// unless it is pinned.
	AllowWritable bool
	// PluginMemoryLimit is the soft memory limit of plugins in Go, in bytes (GOMEMLIMIT),
	// and PluginMaxProcs the number of CPUs that they use at a time (GOMAXPROCS). Keys are
	// the names in the list; "" stands for all other plugins. Default: no memory limit, and
	// a quarter of this process's GOMAXPROCS, at least 1. If PluginEnv names GOMAXPROCS,
	// its value in Environ is the default. A plugin starts with these values instead of the
	// values in Environ. The maps are copied by New.
	PluginMemoryLimit map[string]int64
	PluginMaxProcs    map[string]int
	// Python is the interpreter for the functions in Python of the list: a path, or a name
	// that is looked up in the PATH of Environ. It may end in a pin. Default: python3. It
	// needs the package servetrace and the packages of the function.
	Python string
	// PythonDir is the folder with the modules of these functions. Python looks into it
	// first, then into the working directory, PYTHONPATH and its own folders. Default:
	// none.
	PythonDir string
	// StartJitter bounds a random pause before the first start of each plugin, so that
	// many replicas that start at once do not start all plugins at once. Default: none.
	StartJitter time.Duration
	// Watch is the interval at which a plugin's executable and configuration are checked. A
	// plugin is replaced when one of them has changed and stayed the same from one check to
	// the next. Zero means no checks: only Reload replaces a plugin.
	Watch time.Duration
	// Environ is the environment ("KEY=value") from which plugins get their variables: the
	// variables that every plugin has (such as PATH) and the variables that they declare.
	// Default: the environment of the process.
	Environ []string
}

// Context describes the process that spans come from. An empty field means that the
// value is not known.
type Context struct {
	// Application, Deployment and Replica name a part of a serving program.
	Application, Deployment, Replica string
	// Node is this machine's address. Default: its first IPv4 address that is neither
	// loopback nor link-local, else 127.0.0.1.
	Node string
	// Job is Ray's job id, 8 hexadecimal digits.
	Job string
	// ServiceName is the program's service.name.
	ServiceName string
	// SamplingRatio is the share of root traces that the program's sampler keeps, above
	// 0 and up to 1. Zero: not known.
	SamplingRatio float64
}

// The defaults of Config. DefaultBatchBytes is large because each call has a fixed cost.
// It is smaller than 1 MiB, because the encoder keeps no buffers of more than 1 MiB for
// reuse.
const (
	DefaultQueueBytes    = 32 << 20
	DefaultMaxSpanBytes  = 1 << 20
	DefaultBatchAge      = 200 * time.Millisecond
	DefaultBatchSpans    = 2048
	DefaultBatchBytes    = 768 << 10
	DefaultExportTimeout = 10 * time.Second
	DefaultMaxAge        = 60 * time.Second
	DefaultSpoolMaxAge   = 24 * time.Hour // default of MaxAge with a spool
	DefaultSpoolBytes    = 1 << 30
	DefaultStartTimeout  = 10 * time.Second
	DefaultStopTimeout   = 5 * time.Second
)

const (
	minQueueBytes  = 1 << 20
	mostSpanBytes  = 3 << 20
	mostBatchBytes = 3 << 20
	minSpoolBytes  = 8 << 20
)

func (c Config) withDefaults() Config {
	c.QueueBytes = cmp.Or(c.QueueBytes, DefaultQueueBytes)
	quarter := max(minQueueBytes, c.QueueBytes) / 4
	c.MaxSpanBytes = cmp.Or(c.MaxSpanBytes, int(min(DefaultMaxSpanBytes, quarter)))
	c.BatchAge = cmp.Or(c.BatchAge, DefaultBatchAge)
	c.BatchSpans = cmp.Or(c.BatchSpans, DefaultBatchSpans)
	c.BatchBytes = cmp.Or(c.BatchBytes, int(min(DefaultBatchBytes, quarter)))
	c.ExportTimeout = cmp.Or(c.ExportTimeout, DefaultExportTimeout)
	if c.SpoolDir != "" {
		c.MaxAge = cmp.Or(c.MaxAge, DefaultSpoolMaxAge)
	}
	c.MaxAge = cmp.Or(c.MaxAge, DefaultMaxAge)
	c.SpoolBytes = cmp.Or(c.SpoolBytes, DefaultSpoolBytes)
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	if c.PluginDirs == nil {
		c.PluginDirs = defaultPluginDirs()
	}
	if c.Environ == nil {
		c.Environ = environ()
	}
	if c.Context.Node == "" {
		c.Context.Node = nodeAddress()
	}
	return c
}

// Validate reports all faults of c at once, or returns nil. Each fault names the
// variable that sets the field, the value seen and the values allowed. Validate opens no
// file; it may list folders. A missing plugin is not a fault of the settings, because it
// may be installed later.
func (c Config) Validate() error {
	c = c.withDefaults()
	var errs []error
	check := func(ok bool, variable string, seen any, allowed string) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s=%v: want %s", variable, seen, allowed))
		}
	}
	check(c.QueueBytes >= minQueueBytes, EnvQueueBytes, c.QueueBytes, "1MiB or more")
	check(c.MaxSpanBytes > 0 && c.MaxSpanBytes <= mostSpanBytes, EnvMaxSpanBytes, c.MaxSpanBytes, "between 1 and 3MiB")
	quarter := max(minQueueBytes, c.QueueBytes) / 4
	check(int64(c.MaxSpanBytes) <= quarter, EnvMaxSpanBytes, c.MaxSpanBytes, "at most a quarter of "+EnvQueueBytes)
	check(c.BatchAge > 0, EnvBatchAge, c.BatchAge, "a positive duration such as 200ms")
	check(c.BatchSpans > 0 && c.BatchSpans <= pipeline.MostBatchSpans, EnvBatchSpans, c.BatchSpans, "between 1 and 65536")
	check(c.BatchBytes > 0 && c.BatchBytes <= mostBatchBytes, EnvBatchBytes, c.BatchBytes, "between 1 and 3MiB")
	check(int64(c.BatchBytes) <= quarter, EnvBatchBytes, c.BatchBytes, "at most a quarter of "+EnvQueueBytes)
	check(c.ExportTimeout > 0, EnvExportTimeout, c.ExportTimeout, "a positive duration such as 10s")
	check(c.MaxAge > 0, EnvMaxAge, c.MaxAge, "a positive duration such as 60s")
	check(c.StartTimeout > 0, EnvStartTimeout, c.StartTimeout, "a positive duration such as 10s")
	check(c.StopTimeout > 0, EnvStopTimeout, c.StopTimeout, "a positive duration such as 5s")
	check(c.StartJitter >= 0, EnvStartJitter, c.StartJitter, "a positive duration such as 2s")
	check(c.Watch >= 0, EnvPluginWatch, c.Watch, "a positive duration such as 5s")
	check(!strings.ContainsRune(c.CrashDir, 0), EnvCrashDir, strconv.Quote(c.CrashDir), "a path")
	check(!strings.ContainsRune(c.SpoolDir, 0), EnvSpoolDir, strconv.Quote(c.SpoolDir), "a path")
	check(c.SpoolBytes >= minSpoolBytes, EnvSpoolBytes, c.SpoolBytes, "8MiB or more")
	check(c.SpoolDir == "" || !c.processes(), EnvSpoolDir, strconv.Quote(c.SpoolDir), "no spool with processor plugins ("+EnvProcessors+", "+EnvExporterProcessors+"), which the spool does not support")
	return errors.Join(append(errs, c.pluginSettings().Validate())...)
}

// processes reports whether the settings have a processor plugin that runs.
func (c Config) processes() bool {
	return strings.TrimSpace(c.Plugins) != "" && (strings.TrimSpace(c.Processors) != "" || len(c.ExporterProcessors) > 0)
}

func (c Config) pluginSettings() *pluginlist.Settings {
	configs := make(map[string]pluginlist.Configuration, len(c.PluginConfigs))
	for name, config := range c.PluginConfigs {
		configs[name] = pluginlist.Configuration(config)
	}
	return &pluginlist.Settings{
		Plugins: c.Plugins, Processors: c.Processors, ExporterProcessors: c.ExporterProcessors, FailOpen: c.ProcessorFailOpen, PluginDirs: c.PluginDirs, PluginConfigs: configs, Lockdown: c.Lockdown, PluginEnv: c.PluginEnv,
		PluginMemoryLimit: c.PluginMemoryLimit, PluginMaxProcs: c.PluginMaxProcs, Environ: c.Environ,
		Python: c.Python, PythonDir: c.PythonDir,
	}
}

func (c Config) superviseSettings() supervise.Settings {
	return supervise.Settings{
		Plugins: c.pluginSettings(), Context: c.Context.message(), AllowWritable: c.AllowWritable,
		ExportTimeout: c.ExportTimeout, MaxAge: c.MaxAge, StartTimeout: c.StartTimeout,
		StartJitter: c.StartJitter, Watch: c.Watch, QueueBytes: c.QueueBytes, CrashDir: c.CrashDir,
	}
}

func (c Context) message() *pluginv1.StaticContext {
	return &pluginv1.StaticContext{
		Application: c.Application, Deployment: c.Deployment, Replica: c.Replica, Node: c.Node, Job: c.Job,
		ServiceName: c.ServiceName, SamplingRatio: c.SamplingRatio,
		PluginName: "", Terminal: false, TerminalColumns: 0, // set for each plugin by package supervise
	}
}

// cloned returns c with copies of its maps, because the caller of New may change the
// maps later.
func (c Config) cloned() Config {
	c.ExporterProcessors = maps.Clone(c.ExporterProcessors)
	c.ProcessorFailOpen = maps.Clone(c.ProcessorFailOpen)
	c.PluginConfigs = maps.Clone(c.PluginConfigs)
	c.PluginEnv = maps.Clone(c.PluginEnv)
	c.PluginMemoryLimit = maps.Clone(c.PluginMemoryLimit)
	c.PluginMaxProcs = maps.Clone(c.PluginMaxProcs)
	return c
}

// PluginConfig is the configuration of one plugin: text in YAML or JSON, which the
// host passes on. Either File or Document is set. If neither is, the plugin gets no
// configuration.
type PluginConfig struct {
	// File is the path of the configuration. It is read anew each time the plugin is
	// configured, so that the plugin's next process sees a change. A file that is missing,
	// no regular file, or larger than 1 MiB keeps the plugin from being ready; the start is
	// tried again. A plain OTLP receiver takes no configuration: if it has a File or a
	// Document, it is never ready.
	File string
	// Pick returns the plugin's part of the text of File. It is called after each read
	// of File, one call at a time for a plugin. An empty result means no configuration.
	// After an error, the plugin is not ready. If Pick is nil, the configuration is all
	// of File.
	Pick func(file []byte) (document []byte, err error)
	// Document is the configuration as text, at most 1 MiB. It must not change after New.
	Document []byte
}

func pluginConfigs(configs map[string]pluginlist.Configuration) map[string]PluginConfig {
	if configs == nil {
		return nil
	}
	list := make(map[string]PluginConfig, len(configs))
	for name, config := range configs {
		list[name] = PluginConfig(config)
	}
	return list
}

// Reference is a reference to a credential in a plugin's configuration.
type Reference struct {
	// Text is the reference, "${env:NAME}". A reference in an unknown form is cut to a
	// part that cannot be secret.
	Text string
	// Err is the reason why the reference cannot be resolved, or nil. It never contains
	// the value.
	Err error
}

// References returns the references in the plugin's configuration, each once, in their
// order. It tries to resolve each reference as a Host does at each start of the plugin,
// from the environment of c and from files. It blocks while it reads files. It returns
// no references if there is no configuration. It returns an error if the configuration
// cannot be read, or a reference has no closing brace.
func (c Config) References(plugin string) ([]Reference, error) {
	if c.Environ == nil {
		c.Environ = environ()
	}
	found, err := c.pluginSettings().References(plugin)
	var list []Reference
	for _, r := range found {
		list = append(list, Reference(r))
	}
	return list, err
}
