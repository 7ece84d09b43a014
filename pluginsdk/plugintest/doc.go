// Package plugintest tests exporter plugins: a whole one inside a Go test
// ([Run]), a processor alone ([Process]), and any plugin, in process or as a
// binary in any language, against every rule of the contract between host and
// plugin ([Conformance], [Check]).
//
// A test of a plugin in Go has three parts:
//
//	func TestTenant(t *testing.T) { // one processor, golden spans
//		got := plugintest.Process(t, newTenant, setup, in)
//		…
//	}
//
//	func TestPlugin(t *testing.T) { // all of it, behind a real socket
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
//     "export.empty". The table is rules.go; docs/reference/conformance.md lists it.
//  2. A rule starts the plugin as a host does: a small environment, the
//     handshake's variables, pipes on descriptors 0, 1 and 2. Rules that leave a
//     plugin as they found it share one; all others have a process to
//     themselves. Four rules run at a time ([WithParallel]).
//  3. The plugin must be able to work: [WithEnv] and [WithConfig] give it what
//     it needs, a back end included. The suite sends it numbered spans of the
//     service "plugintest".
//  4. Some rules need the author's help: an input that makes the plugin refuse,
//     filter or wait ([WithInput]), a state of the back end in which the plugin
//     does so ([WithState]), a look at what has arrived
//     ([WithReceived]), a configuration that it must refuse ([WithBadConfig]).
//  5. Each rule ends in pass, fail or skip. Skip says why: the rule does not
//     apply to this plugin, or help is missing, or a rule that it builds upon
//     is not kept. It is never counted as passed.
//
// A plain OTLP receiver behind the handshake, without Lifecycle, is a plugin
// too: rules about describing, configuring and ending are skipped for it.
//
// The suite waits with much patience, so that a busy machine fails nobody
// ([WithPatience]). It does not judge speed, what a plugin makes of spans, or
// what it logs. It needs no network.
//
// Open rules.go first, then the rules_*.go; check.go runs them, session.go is a
// started plugin and the calls to it, process.go (by internal/launch) and inprocess.go start it.
package plugintest
