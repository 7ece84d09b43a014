// Package plugintest tests plugins: a whole plugin inside a Go test ([Run]), a processor
// alone ([Process]), and any plugin, in process or as a binary in any language, against
// every rule of the contract between host and plugin ([Conformance], [Check]). A plugin is
// an exporter or a processor, as Describe says. For a processor plugin, Export in the rules
// means Process.
//
// A test of a plugin in Go has three parts:
//
//	func TestTenant(t *testing.T) { // one processor, golden spans
//		got := plugintest.Process(t, newTenant, setup, in)
//		…
//	}
//
//	func TestPlugin(t *testing.T) { // the whole plugin, behind a real socket
//		p := plugintest.Run(t, spec, plugintest.WithEnv("TENANT=acme"))
//		answer, err := p.Export(t.Context(), request)
//		…
//	}
//
//	func TestConformance(t *testing.T) { // every rule, each a subtest
//		plugintest.Conformance(t, plugintest.InProcess(spec), plugintest.WithEnv("TENANT=acme"))
//		plugintest.Conformance(t, plugintest.Binary("./bin/tenant"), plugintest.WithEnv("TENANT=acme"))
//	}
//
// A plugin in another language has the same suite on the command line:
//
//	servetrace plugin test PATH --env TENANT=acme --junit report.xml
//
// How the suite works:
//
//  1. A rule is one sentence of the contract, with an id that never changes:
//     "export.empty". rules.go has the table; docs/reference/conformance.md lists it.
//  2. A rule starts the plugin as a host does: with a small environment, the
//     handshake's variables, and pipes on descriptors 0, 1 and 2. Each rule has
//     processes of its own. Four rules run at a time ([WithParallel]).
//  3. The plugin must be able to work. [WithEnv] and [WithConfig] configure it, with
//     a back end if it needs one. The suite sends numbered spans of the service
//     "plugintest".
//  4. Some rules need the author's help: a batch that makes the plugin refuse, filter
//     or wait ([WithInput]), a state of the back end with the same effect
//     ([WithState]), the ids of the spans that have arrived ([WithReceived]), or a
//     configuration that the plugin must refuse ([WithBadConfig]).
//  5. Each rule ends in pass, fail or skip. A skip never counts as passed. Its reason
//     is in the report: the rule does not apply to the plugin, help is missing, or a
//     rule that it builds upon is not kept.
//
// A plain OTLP receiver behind the handshake, without Lifecycle, is a plugin too. The
// rules about Describe, Configure, Flush and Shutdown are skipped for it.
//
// The suite waits for a long time, so that no plugin fails on a busy machine
// ([WithPatience]). It does not judge speed, the delivered spans, or the log. It needs
// no network.
//
// Open rules.go first, then the rules_*.go with the checks. trial.go and subject.go
// have the vocabulary of the checks. check.go runs the rules. plugin.go starts a plugin
// in a process (by internal/launch) or, with inner.go, in this process. session.go has
// the calls to the plugin.
package plugintest
