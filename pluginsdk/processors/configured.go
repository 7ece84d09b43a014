package processors

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/pluginsdk"
)

// EnvRayContext is the environment variable that adds [RayContext] to the processors of
// [Configured] and [ConfiguredWithRay] if it is "on", and does not if it is "off". Empty
// means off for Configured, and on for ConfiguredWithRay.
const EnvRayContext = "SERVE_RAY_CONTEXT"

// The keys of processors in a configuration. Each is also the default name under which
// the host counts the spans that the processor drops.
const (
	kindRayContext = "raycontext"
	kindAttributes = "attributes"
	kindRedact     = "redact"
	kindFilter     = "filter"
	kindSample     = "sample"
)

// Configured constructs the processors in the plugin's configuration. Each exporter
// plugin of this repository has Configured or ConfiguredWithRay in its
// pluginsdk.Spec.Processors. If SERVE_RAY_CONTEXT is "on" and the configuration does not
// list raycontext, the first processor is [RayContext]. Then follow the processors of the
// list "processors", in order:
//
//	processors:
//	  - filter: {drop: [{name: "GET /health*"}]}
//	  - redact: {name: redact-mails, without: [card]}
//	  - sample: {ratio: 0.1, keep: {errors: true, slower_than: 1s}}
//	exporter: {}
//
// An entry has the kind of a processor as its key: raycontext, attributes, redact, filter
// or sample. The value of the key has the fields of [RayContextConfig],
// [AttributesConfig], [RedactConfig], [FilterConfig] or [SampleConfig]; {} means the
// defaults. Several processors with the same key need different names, because the host
// counts dropped spans by name. Configured ignores other top-level keys of the
// configuration, which the plugin's other constructors decode.
//
// Configured returns a [pluginsdk.Chain]. If neither the variable nor the configuration
// adds a processor, the Chain is empty and costs nothing. The plugin must declare
// EnvRayContext in its Spec.Env. All errors are joined, each a [*pluginsdk.ConfigError].
func Configured(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	return configured(ctx, s, false)
}

// ConfiguredWithRay is [Configured] for a plugin with a back end that expects Ray's ids.
// The default of SERVE_RAY_CONTEXT is "on".
func ConfiguredWithRay(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	return configured(ctx, s, true)
}

// configured implements Configured and ConfiguredWithRay. rayContext is the default of
// SERVE_RAY_CONTEXT.
func configured(ctx context.Context, s pluginsdk.Setup, rayContext bool) (pluginsdk.Processor, error) {
	var doc document
	if err := s.DecodeConfig(&doc); err != nil {
		return nil, nameSuccessors(err)
	}
	on, err := rayContextIsOn(s, rayContext)
	all := faults{err}
	var chain pluginsdk.Chain
	if on && !slices.ContainsFunc(doc.Processors, func(e entry) bool { return e.RayContext != nil }) {
		first, _ := RayContext()(ctx, s) // cannot fail, because the zero config is valid
		chain = append(chain, first)
	}
	names := map[string]int{}
	for i, e := range doc.Processors {
		path := fmt.Sprintf("processors[%d]", i)
		list := e.choices()
		if len(list) != 1 {
			text := "names no processor: want one of attributes, filter, raycontext, redact, sample, with {} for its defaults"
			if len(list) > 1 {
				text = fmt.Sprintf("names %d processors: give each a dash of its own, for their order matters", len(list))
			}
			all.add(path, "%s", text)
			continue
		}
		c := list[0]
		made, err := c.build(ctx, s)
		all = append(all, within(path, err)) // the path in err already begins with the processor's key
		chain = append(chain, made)
		if before, taken := names[c.name]; taken {
			all.add(path+"."+c.kind+".name", "%q is the name of processors[%d] too: give one of them another, "+
				"because the delivery accounting needs different names", c.name, before)
		}
		names[c.name] = i
	}
	if err := all.err(); err != nil {
		return nil, errors.Join(leaves(err)...)
	}
	return chain, nil
}

var (
	_ pluginsdk.NewProcessor = Configured
	_ pluginsdk.NewProcessor = ConfiguredWithRay
)

func rayContextIsOn(s pluginsdk.Setup, otherwise bool) (bool, error) {
	if s.Getenv == nil {
		return otherwise, nil
	}
	switch value := s.Getenv(EnvRayContext); value {
	case "on":
		return true, nil
	case "off":
		return false, nil
	case "":
		return otherwise, nil
	default:
		return false, &pluginsdk.ConfigError{Path: EnvRayContext, Err: fmt.Errorf("%q: want on or off", value)}
	}
}

// document is the part of a plugin's configuration that Configured decodes. Other
// constructors decode other keys.
type document struct {
	Processors []entry `yaml:"processors"`
}

// entry is an entry of the list "processors" in a configuration. Exactly one field must
// be set.
type entry struct {
	RayContext *RayContextConfig `yaml:"raycontext"`
	Attributes *AttributesConfig `yaml:"attributes"`
	Redact     *RedactConfig     `yaml:"redact"`
	Filter     *FilterConfig     `yaml:"filter"`
	Sample     *sampleEntry      `yaml:"sample"`
}

// sampleEntry is a SampleConfig in a configuration. Here the ratio is required, because
// the zero value would drop all spans.
type sampleEntry struct {
	Name  string     `yaml:"name"`
	Ratio *float64   `yaml:"ratio"`
	Keep  KeepConfig `yaml:"keep"`
}

type choice struct {
	kind, name string
	build      pluginsdk.NewProcessor
}

func (e entry) choices() []choice {
	var list []choice
	add := func(kind, name string, build pluginsdk.NewProcessor) {
		list = append(list, choice{kind, cmp.Or(name, kind), build})
	}
	if c := e.RayContext; c != nil {
		add(kindRayContext, c.Name, c.constructor())
	}
	if c := e.Attributes; c != nil {
		add(kindAttributes, c.Name, Attributes(*c))
	}
	if c := e.Redact; c != nil {
		add(kindRedact, c.Name, Redact(*c))
	}
	if c := e.Filter; c != nil {
		add(kindFilter, c.Name, Filter(*c))
	}
	if c := e.Sample; c != nil {
		add(kindSample, c.Name, c.build)
	}
	return list
}

func (c *sampleEntry) build(ctx context.Context, s pluginsdk.Setup) (pluginsdk.Processor, error) {
	if c.Ratio == nil {
		return nil, &pluginsdk.ConfigError{
			Path: kindSample + ".ratio", Err: errors.New("is missing: give the share of traces to keep, 0 to 1"),
		}
	}
	return Sample(SampleConfig{Name: c.Name, Ratio: *c.Ratio, Keep: c.Keep})(ctx, s)
}

// nameSuccessors replaces each error about a key of redact that earlier versions had. The
// new error says how to replace the key.
func nameSuccessors(err error) error {
	all := leaves(err)
	for i, one := range all {
		fault, ok := errors.AsType[*pluginsdk.ConfigError](one)
		if !ok {
			continue
		}
		_, key, ofRedact := strings.Cut(fault.Path, "."+kindRedact+".")
		if successor := removedKeys[key]; ofRedact && successor != "" {
			all[i] = &pluginsdk.ConfigError{Path: fault.Path, Err: errors.New(successor)}
		}
	}
	return errors.Join(all...)
}
