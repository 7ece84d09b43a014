package plugintest

import (
	"google.golang.org/protobuf/proto"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// subject is a plugin that was started for one rule. Its methods fail the rule and end the
// calling goroutine if the plugin does not behave as expected.
type subject struct {
	running
	t *trial
}

// handshake waits for the plugin's handshake and returns it.
func (p *subject) handshake() handshake {
	shake, err := p.plugin.handshake(p.t.ctx, p.t.suite.settings.patience)
	p.t.must(err)
	return shake
}

// connect waits for the plugin's handshake, and connects to the plugin.
func (p *subject) connect() {
	p.t.must(p.running.connect(p.t.ctx, p.t.suite.settings, &p.t.suite.seen))
	p.session.processes = p.t.knowsPlugin() && p.t.suite.about.isProcessor()
}

func (p *subject) describe() *pluginv1.DescribeResponse {
	response, err := p.session.describe(p.t.ctx)
	p.t.must(err)
	return response
}

func (p *subject) request() *pluginv1.ConfigureRequest {
	return p.t.suite.settings.request(p.t.suite.about.response.GetEnvPatterns())
}

func (p *subject) configure() {
	p.t.must(p.session.configureWell(p.t.ctx, p.request()))
}

// export sends a batch and returns the plugin's answer, with any code.
func (p *subject) export(b batch) Answer {
	answer, err := p.session.export(p.t.ctx, b)
	p.t.must(err)
	return answer
}

// delivers sends a batch, which the plugin must answer with OK.
func (p *subject) delivers(b batch) Answer {
	answer, err := p.session.mustExport(p.t.ctx, b)
	p.t.must(err)
	return answer
}

// lives expects that the plugin still delivers batches. after names the preceding event,
// for errors.
func (p *subject) lives(after string) {
	p.t.step = "after " + after
	p.delivers(p.t.batch(1))
	p.t.step = ""
}

func (p *subject) shutsDown() {
	if err := noneLeft(p.session.shutdown(p.t.ctx)); err != nil {
		p.t.fatalf("Shutdown: %v", err)
	}
}

// answersShutdown calls Shutdown. It expects that the plugin answers, with any code, or
// ends.
func (p *subject) answersShutdown() {
	_, err := p.session.shutdown(p.t.ctx)
	if err == nil || codeOf(err) != "" && codeOf(err) != wire.CodeRetry {
		return
	}
	if p.plugin.awaitEnd(p.t.ctx, p.t.prompt()) != nil { // if the plugin has ended, that broke the connection
		p.t.must(err)
	}
}

// letGo asks the plugin to end as a host does: by go-plugin's controller, and by the end
// of standard input. It ignores errors, because the plugin may have ended already.
func (p *subject) letGo() {
	_ = p.session.release(p.t.ctx)
	p.plugin.CloseStdin()
}

// ends expects that the plugin ends soon. after names the preceding event, for errors.
func (p *subject) ends(after string) {
	if err := p.plugin.awaitEnd(p.t.ctx, p.t.prompt()); err != nil {
		p.t.fatalf("after %s: %v; want its end within 2 s (the suite grants %v)", after, err, p.t.prompt())
	}
}

// endsCleanly expects that the plugin ends soon, with status 0. after names the preceding
// event, for errors.
func (p *subject) endsCleanly(after string) {
	p.ends(after)
	if err := p.plugin.exit(); err != nil {
		p.t.fatalf("after %s: %v; want status 0", after, err)
	}
}

// endsReleased delivers a batch, asks the plugin to end as a host does, and expects that
// it ends with status 0.
func (p *subject) endsReleased() {
	p.delivers(p.t.batch(2))
	if !p.t.suite.about.plain {
		p.shutsDown()
	}
	p.letGo()
	p.endsCleanly("Shutdown, GRPCController.Shutdown and the end of standard input")
}

// arrivedIDs returns the ids of all spans that have arrived at the back end. visible is false
// if the suite cannot see them.
func (p *subject) arrivedIDs() (ids []string, visible bool) {
	if received := p.t.suite.settings.received; received != nil {
		ids, err := received()
		if err != nil {
			p.t.fatalf("WithReceived: %v", err)
		}
		return ids, true
	}
	batches, visible := p.arrived()
	for _, encoded := range batches {
		var data tracepb.TracesData
		if proto.Unmarshal(encoded, &data) == nil { // the rule export.malformed sends batches that cannot be decoded
			ids = append(ids, spanIDs(data.GetResourceSpans())...)
		}
	}
	return ids, visible
}
