package plugintest

import (
	"errors"
	"maps"
	"math"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// The checks of Describe.

type about struct {
	response *pluginv1.DescribeResponse // the answer to Describe; nil if plain is true
	plain    bool
}

func (a about) isProcessor() bool {
	return a.response.GetKind() == pluginv1.Kind_KIND_PROCESSOR
}

// maxBytes returns the size in bytes of the largest batch that a host sends to this
// plugin.
func (a about) maxBytes() int {
	return limit(a.response.GetLimits().GetMaxBatchBytes(), wire.DefaultMaxBatchBytes, wire.MaxMessageBytes)
}

// maxSpans returns the largest number of spans in a batch that a host sends to this
// plugin. Hosts have the variable SERVE_TRACING_BATCH_SPANS for it, with the default 2048
// and at most 65536.
func (a about) maxSpans() int { return limit(a.response.GetLimits().GetMaxBatchSpans(), 2048, 1<<16) }

// concurrency returns the number of concurrent calls that the suite makes: the declared
// limit, or 64. No host makes more than 64.
func (a about) concurrency() int { return limit(a.response.GetLimits().GetMaxConcurrency(), 64, 64) }

// limit returns the smaller of declared and largest. It returns unset if declared is
// zero, which means that the plugin declares no limit.
func limit(declared uint32, unset, largest int) int {
	if declared == 0 {
		return unset
	}
	return int(min(int64(declared), int64(largest)))
}

func checkDescribe(t *trial) {
	response, err := t.connect(asHost).session.describe(t.ctx)
	if codeOf(err) == "UNIMPLEMENTED" {
		t.suite.about.plain = true
		return
	}
	t.must(err)
	t.suite.about.response = response
}

// expectSameDescribe expects that the plugin answers Describe as in the rule
// describe.answered, for which another process ran. when is for errors.
func expectSameDescribe(p *subject, when string) {
	if got, want := p.describe(), p.t.suite.about.response; !proto.Equal(got, want) {
		p.t.fatalf("%s: Describe answers\n%v\nbut another process of the plugin answered\n%v\nwant one answer: a host relies on the first", when, got, want)
	}
}

func checkRepeatable(t *trial) {
	const calls = 8
	p := t.connect(asHost)
	t.atOnce(calls, func(int) { expectSameDescribe(p, "several at once") })
	if _, err := p.session.configure(t.ctx, p.request()); err != nil {
		t.skipf("Configure: %v", err)
	}
	expectSameDescribe(p, "after Configure")
}

// nameForm matches a valid name of a plugin. lineForm matches a text without line breaks
// and other control characters.
var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	lineForm = regexp.MustCompile(`^[^\x00-\x1f\x7f]*$`)
)

func checkNames(t *trial) {
	a := t.suite.about.response
	if !nameForm.MatchString(a.GetName()) {
		t.errorf("name is %q; want lower-case letters, digits and dashes, beginning with a letter", a.GetName())
	}
	for _, field := range []struct{ name, value string }{
		{"version", a.GetVersion()},
		{"sdk.name", a.GetSdk().GetName()},
		{"sdk.version", a.GetSdk().GetVersion()},
		{"sdk.language", a.GetSdk().GetLanguage()},
		{"description", a.GetDescription()},
	} {
		if !lineForm.MatchString(field.value) {
			t.errorf("%s is %q; want one line without control characters: it is logged", field.name, wire.Clip(field.value))
		}
	}
	if a.GetVersion() == "" {
		t.errorf("version is empty; want the plugin's own version in any form: operators ask for it")
	}
}

func checkKind(t *trial) {
	switch got := t.suite.about.response.GetKind(); got {
	case pluginv1.Kind_KIND_EXPORTER, pluginv1.Kind_KIND_PROCESSOR:
	default:
		t.fatalf("kind is %v, want KIND_EXPORTER or KIND_PROCESSOR: this version of the contract knows no other", got)
	}
}

func checkPatterns(t *trial) {
	patterns := t.suite.about.response.GetEnvPatterns()
	for i, pattern := range patterns {
		if !wire.ValidEnvPattern(pattern) {
			t.errorf("pattern %q: a host refuses the plugin for it", pattern)
		}
		if slices.Contains(patterns[:i], pattern) {
			t.errorf("pattern %q is declared twice", pattern)
		}
	}
}

func checkLimits(t *trial) {
	const fewestBytes = 4 << 10
	limits := t.suite.about.response.GetLimits()
	if n := limits.GetMaxBatchBytes(); n > 0 && n < fewestBytes {
		t.errorf("max_batch_bytes is %d; want 0 (the host's default) or %d and more, or batches are cut to single spans", n, fewestBytes)
	}
	for _, limit := range []struct {
		name  string
		value uint32
	}{
		{"max_batch_spans", limits.GetMaxBatchSpans()},
		{"max_batch_bytes", limits.GetMaxBatchBytes()},
		{"max_concurrency", limits.GetMaxConcurrency()},
	} {
		if limit.value > math.MaxInt32 {
			t.errorf("%s is %d, probably a negative number; want 0 (the host's default) to %d", limit.name, limit.value, math.MaxInt32)
		}
	}
}

func checkOffline(t *trial) {
	plugin, err := t.suite.target.start(startOptions{offline: true})
	if noNamespaces(err) {
		t.skipf("this machine gives a process no network of its own: %v", err)
	}
	t.must(err)
	p := t.adopt(&subject{running: running{plugin: plugin}})
	t.step = "without a network"
	p.connect()
	p.describe()
	t.step = ""
	attempts, err := networkUse(p.plugin.PID())
	if err != nil {
		t.skipf("the packets that it sends cannot be counted: %v", err)
	}
	if attempts > 0 {
		t.fatalf("it tried to send %d packets before Configure; connect after Configure", attempts)
	}
}

// checkEnvAtStart starts the plugin with the author's variables in the environment, as a
// host does if the plugin asks for that. It expects the same answer to Describe as
// without these variables.
func checkEnvAtStart(t *trial) {
	response := t.suite.about.response
	switch {
	case !response.GetEnvAtStart():
		t.skipf("it does not ask for its variables at its start")
	case len(response.GetEnvPatterns()) == 0:
		t.fatalf("env_at_start is true and env_patterns is empty: declare the variables, because a host starts the plugin with declared variables only")
	}
	t.step = "started with its variables"
	expectSameDescribe(t.connect(asHost), "in its start environment")
}

// The checks of Configure.

func checkDeclared(t *trial) {
	s, patterns := t.suite.settings, t.suite.about.response.GetEnvPatterns()
	if len(s.env) == 0 {
		t.skipWithout("WithEnv", "--env", "it is tested without variables")
	}
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		if !declared(patterns, name) && !wire.BaseVariable(name) {
			t.errorf("%s is not declared (Describe declares %q): a host does not send it; add it to the patterns", name, patterns)
		}
	}
}

func checkBare(t *trial) {
	p := t.connect(asHost)
	if _, err := p.session.configure(t.ctx, &pluginv1.ConfigureRequest{}); err != nil { //nolint:exhaustruct_v5 // the message must be empty for this rule
		t.fatalf("call Configure: %v; want an answer, with diagnostics about missing settings", err)
	}
	p.describe()
}

// noConfig is a text that is neither YAML nor JSON.
var noConfig = []byte("{plugintest: [\x00\n\t}")

func checkBadConfig(t *trial) {
	p := t.connect(asHost)
	given := t.suite.settings.badConfig
	request := p.request()
	if request.Config = noConfig; given != nil {
		request.Config = given
	}
	reply, err := p.session.configure(t.ctx, request)
	switch {
	case err != nil:
		t.fatalf("call Configure: %v; want an answer with a diagnostic: an operator reads it", err)
	case len(errorsOf(reply)) == 0 && given != nil:
		t.fatalf("the configuration of WithBadConfig (--bad-config) is accepted")
	case len(errorsOf(reply)) == 0:
		t.skipWithout("WithBadConfig", "--bad-config", "it accepts a configuration that is neither YAML nor JSON, so it seems to read none")
	}
	t.step = "after a refused Configure"
	if p.export(t.batch(1)).Delivered() {
		t.fatalf("a batch is answered OK")
	}
}

func checkConfiguredOnce(t *trial) {
	p := t.ready(asHost)
	reply, err := p.session.configure(t.ctx, p.request())
	if err == nil && len(errorsOf(reply)) == 0 {
		t.fatalf("a second Configure is accepted; answer FAILED_PRECONDITION: Configure comes once")
	}
	p.lives("a second Configure")
}

func checkNewerHost(t *trial) {
	p := t.connect(asHost)
	t.step = "with fields of a newer host"
	describe := &pluginv1.DescribeRequest{HostVersion: "plugintest"}
	describe.ProtoReflect().SetUnknown(unknownField)
	_, err := call(t.ctx, p.session, p.session.lifecycle.Describe, describe)
	if err != nil {
		t.fatalf("call Describe: %v", err)
	}
	request := p.request()
	request.ProtoReflect().SetUnknown(unknownField)
	request.GetContext().ProtoReflect().SetUnknown(unknownField)
	reply, err := p.session.configure(t.ctx, request)
	if faults := errorsOf(reply); err == nil && len(faults) > 0 {
		err = errors.New(faults[0])
	}
	if err != nil {
		t.fatalf("call Configure: %v", err)
	}
	p.delivers(t.batch(1))
}

// checkWorks starts the plugin with the options o, configures it, and expects that it
// delivers a batch.
func checkWorks(t *trial, o startOptions) { t.ready(o).delivers(t.batch(1)) }

func checkSideBySide(t *trial) {
	var both [2]*subject
	t.atOnce(len(both), func(i int) { both[i] = t.ready(asHost) })
	t.atOnce(len(both), func(i int) { both[i].delivers(t.batch(3)) })
}
