package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode/utf8"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
	"github.com/servetrace/servetrace/host/internal/supervise"
	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/launch"
	"github.com/servetrace/servetrace/internal/wire"
)

// Inspection is the result of Inspect for one entry of the list. If a value is not
// known, its field is zero, and Err has the reason.
type Inspection struct {
	// Name is the entry's name. Where is its path, bare name or address in the list,
	// without escapes.
	Name, Where string
	// Path is the executable, or the socket of an attached plugin.
	Path string
	// Args are the arguments of the executable. Only an exporter function in Python has
	// arguments, and Path is then the interpreter.
	Args []string
	// Folder is the folder of the list that contains the plugin, or empty.
	Folder string
	// Pin is the digest in the list, and Digest the digest of the present file. Both
	// have the form "sha256:" and 64 hexadecimal digits. Pin is empty without a pin.
	// Digest is empty if there is no file, or it cannot be read.
	Pin, Digest string
	// Processor is true for an entry of a list of processors. Exporter is the name of its
	// exporter, empty if it is for all exporters. FailOpen is its value in
	// Config.ProcessorFailOpen.
	Processor bool
	Exporter  string
	FailOpen  bool
	// Attached is true if a Host attaches to the plugin instead of starting it. Such a
	// plugin gets no variables, no configuration and no Context.
	Attached bool
	// Err is the reason why a Host could not use the plugin. Examples: it is not found,
	// its configuration cannot be read, it does not start or does not answer, or it
	// asks for variables that it does not get.
	Err error
	// Described is true if the plugin has answered with About. It is false for a plain
	// OTLP receiver.
	Described bool
	// About is the plugin's description of itself, each text clipped to 1 KiB.
	About About
	// Variables are the variables of Config.Environ that the plugin gets, sorted by
	// name, without the variables of the handshake. If the plugin was not described,
	// they are only the variables that it starts with.
	Variables []Variable
	// Withheld are the names of the declared variables that lock-down keeps from the
	// plugin, sorted.
	Withheld []string
	// Config is the configuration as the operator wrote it, with unresolved references. Nil
	// if there is none. ConfigFile is the path of its file, or empty if it came from
	// PluginConfig.Document.
	Config     []byte
	ConfigFile string
	// Context is the description of this process that the plugin gets; a plain OTLP
	// receiver gets none.
	Context Context
	// MaxBatchSpans, MaxBatchBytes and MaxConcurrency are the limits that a Host applies:
	// the plugin's own limits, or the defaults. Zero if the plugin was not asked for its
	// description, or did not answer.
	MaxBatchSpans, MaxBatchBytes, MaxConcurrency int

	document []byte
	secrets  []string
	digest   string
}

// Document returns the configuration with its references resolved, as the plugin gets
// it. It contains credentials and must not be shown.
func (i Inspection) Document() []byte { return i.document }

// Secrets returns texts that must not be shown, in no order: the values of references
// in Config, and of variables with names that suggest a secret.
func (i Inspection) Secrets() []string { return i.secrets }

// Pinned returns an entry of the list for the plugin, with an absolute path and the
// digest of the present file as its pin. It is empty if Digest is empty, and for an
// exporter function in Python.
func (i Inspection) Pinned() string {
	if i.digest == "" || i.Args != nil {
		return ""
	}
	return pluginlist.Pinned(false, i.Name, i.Path, i.digest)
}

// About is a plugin's description of itself.
type About struct {
	// Name and Version are the name and version of the plugin. SDK is the name and
	// version of the library that it is built with. Language is the library's language,
	// as in telemetry.sdk.language.
	Name, Version, SDK, Language string
	// Description is one line for people.
	Description string
	// Patterns name the variables that the plugin reads.
	Patterns []string
	// EnvAtStart is true if the plugin wants its variables in its start environment.
	EnvAtStart bool
	// Processor is true for a processor plugin.
	Processor bool
}

// Variable is one variable that a plugin gets.
type Variable struct {
	Name, Value string
	// Base is true if every plugin gets the variable, or if it is PYTHONPATH for an
	// exporter function in Python.
	Base bool
	// Setting is the name of the operator's setting from which the plugin gets this
	// variable at its start: SERVE_TRACING_PLUGIN_ENV, SERVE_TRACING_PLUGIN_GOMEMLIMIT or
	// SERVE_TRACING_PLUGIN_GOMAXPROCS. If Setting is empty and Base is false, the plugin
	// has declared the variable. The plugin then gets it when it is configured, or at its
	// start if About.EnvAtStart is set.
	Setting string
	// Default is true if the operator has not set Setting, and Value is the host's
	// default.
	Default bool
}

// Granted reports whether the plugin gets the variable when it is configured. If not,
// it has the variable only in its start environment.
func (v Variable) Granted() bool {
	return !v.Base && (v.Setting == "" || v.Setting == EnvPluginEnv && utf8.ValidString(v.Value))
}

// WithEitherKind makes [Inspect] accept a processor plugin in [Config.Plugins], for a tool
// that starts a single plugin. By default such a plugin is an error. It has no effect in
// New.
func WithEitherKind() Option {
	return optionFunc(func(o *options) { o.eitherKind = true })
}

// Inspect returns an Inspection for each entry of cfg's lists, in their order,
// processors first. If launch is true, it starts each plugin, or attaches to it, asks
// for its description and ends it, all plugins at the same time. No plugin is configured
// or gets a span. If launch is false, it only reads files. It blocks until all plugins
// have ended: a little more than Config.StartTimeout, or less if ctx ends. If cfg itself
// is faulty, it returns one Inspection with the error of Validate.
func Inspect(ctx context.Context, cfg Config, launch bool, opts ...Option) []Inspection {
	h, err := New(cfg, opts...)
	if err != nil {
		return []Inspection{{Err: err}}
	}
	var o options
	for _, opt := range opts {
		opt.apply(&o)
	}
	list := make([]Inspection, len(h.plugins))
	var all sync.WaitGroup
	for i, x := range h.plugins {
		all.Go(func() { list[i] = h.cfg.inspect(ctx, x, launch, o.eitherKind) })
	}
	all.Wait()
	return list
}

func (c Config) inspect(ctx context.Context, x *supervise.Plugin, launch, eitherKind bool) Inspection {
	plan, err := x.Plan()
	plan.EitherKind = eitherKind
	settings := c.pluginSettings()
	i := Inspection{
		Name:       x.Entry.Name,
		Where:      x.Entry.Where,
		Path:       plan.Path,
		Args:       plan.Args,
		Folder:     x.Entry.From,
		Pin:        supervise.DigestText(x.Entry.Digest),
		Processor:  x.Entry.Processor,
		Exporter:   x.Entry.Exporter,
		FailOpen:   x.Entry.Processor && settings.FailsOpen(x.Entry.Name),
		Attached:   plan.Attached,
		Err:        err,
		Variables:  variables(settings, plan, nil),
		Config:     plan.Config,
		ConfigFile: c.PluginConfigs[x.Entry.Name].File,
		document:   plan.Document,
		secrets:    plan.Secrets,
	}
	if !plan.Attached {
		i.Context = c.Context
	}
	if plan.Path != "" && !plan.Attached {
		i.digest = fileDigest(plan.Path)
		i.Digest = supervise.DigestText(i.digest)
	}
	switch {
	case plan.Path == "":
	case launch:
		p, d, err := x.ConnectUnsupervised(ctx, &plan, false)
		if err == nil {
			err = x.HangUp(p, supervise.EndTimeout)
		}
		setDescription(&i, d, plan.Redactor)
		i.Variables, i.Withheld = variables(settings, plan, d.Granted), d.Withheld
		if err == nil && !i.Described {
			i.Context = Context{} // a plain OTLP receiver has no call that could carry the context
		}
		i.Err = errors.Join(i.Err, err)
	default:
		i.Err = errors.Join(plan.Check(), i.Err)
	}
	return i
}

func setDescription(i *Inspection, d supervise.Description, secrets launch.Redactor) {
	i.MaxBatchSpans, i.MaxBatchBytes, i.MaxConcurrency = d.Limits.Spans, d.Limits.Bytes, d.Limits.Calls
	if d.About == nil {
		return
	}
	sdk := d.About.GetSdk()
	i.Described = true
	i.About = About{
		Name:        wire.Clip(d.About.GetName()),
		Version:     wire.Clip(d.About.GetVersion()),
		SDK:         supervise.SdkText(d.About),
		Language:    wire.Clip(sdk.GetLanguage()),
		Description: wire.Clip(d.About.GetDescription()),
		EnvAtStart:  d.About.GetEnvAtStart(),
		Processor:   d.About.GetKind() == pluginv1.Kind_KIND_PROCESSOR,
	}
	for _, pattern := range d.About.GetEnvPatterns() {
		i.About.Patterns = append(i.About.Patterns, wire.Clip(secrets.Text(pattern)))
	}
}

// variables returns the variables with which the process of a plugin starts, and the
// variables that are granted to it, sorted by name. If a variable occurs twice in the
// environment, the last value counts, as in the process.
func variables(settings *pluginlist.Settings, p supervise.Plan, granted map[string]string) []Variable {
	byName := map[string]Variable{}
	for name, value := range granted {
		byName[name] = Variable{Name: name, Value: value}
	}
	limits := settings.Limits(p.Name)
	for _, kv := range p.Environ {
		name, value, _ := strings.Cut(kv, "=")
		v := Variable{Name: name, Value: value, Base: wire.BaseVariable(name) || p.Function != "" && name == pluginlist.VarPythonPath}
		switch limit, ok := limits[name]; {
		case ok:
			v.Setting, v.Default = limit.Setting, limit.Default
		case !v.Base:
			v.Setting = EnvPluginEnv
		}
		byName[name] = v
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b Variable) int { return strings.Compare(a.Name, b.Name) })
}

// fileDigest returns the digest of a regular file, or "" if the file cannot be read.
func fileDigest(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // without O_NONBLOCK, opening a named pipe would block
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }() // nothing was written, so an error of Close has no effect
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return ""
	}
	return string(hash.Sum(nil))
}
