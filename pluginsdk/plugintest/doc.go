// Package plugintest tests plugins. [Run] starts a whole plugin inside a Go test, and
// [Process] runs a single processor. [Conformance] and [Check] test a plugin against
// every rule of the contract between host and plugin, either in process or as a binary in
// any language. A plugin is an exporter plugin or a processor plugin. For a processor
// plugin, Export in the rules means Process.
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
// A plugin in another language is tested by the same suite on the command line:
//
//	servetrace plugin test PATH --env TENANT=acme --junit report.xml
//
// How the suite works:
//
//  1. A rule is one sentence of the contract, with an id that never changes, such as
//     "export.empty". The table of rules is in rules.go and
//     docs/reference/conformance.md.
//  2. Each rule starts the plugin in a process of its own, as a host does: with few
//     variables, among them the variables of the handshake, and with pipes on descriptors
//     0, 1 and 2. Four rules run at a time ([WithParallel]).
//  3. [WithEnv] and [WithConfig] configure the plugin so that it can work. If it needs a
//     back end, the author provides one. The suite sends numbered spans of the service
//     "plugintest".
//  4. Some rules need more from the author: a batch that makes the plugin refuse, filter
//     or wait ([WithInput]), a state of the back end with the same effect ([WithState]),
//     the ids of the spans that have arrived ([WithReceived]), or a configuration that
//     the plugin must refuse ([WithBadConfig]).
//  5. The outcome of a rule is pass, fail or skip. A skipped rule does not count as
//     passed. The report has the reason: the rule does not apply to the plugin, an option
//     is missing, or the plugin breaks a rule that this rule builds upon.
//
// A program that prints the handshake and serves only OTLP is a plugin, too. The rules
// about Describe, Configure, Flush and Shutdown are skipped for it.
//
// The suite waits long for answers, so that no plugin fails on a busy machine
// ([WithPatience]). It does not judge speed, the content of delivered spans, or the log.
// It needs no network.
//
// Open rules.go first, then rules_*.go with the checks of the rules. The checks use the
// methods in trial.go and subject.go. check.go runs the rules. plugin.go starts a plugin
// in a process, and inner.go in this process. session.go makes the calls to the plugin.
package plugintest
