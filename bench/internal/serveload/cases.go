package serveload

import (
	"context"
	"slices"
	"time"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Name is what the suite is called.
const Name = "serving"

// row is a server under load.
type row struct {
	name, doc string
	by        string
	// ratio of the requests is sampled; empty for tracing off.
	ratio string
	// The rest is for ours only. The plugin is a file of Env.Bin, or an absolute
	// path; with a ratio there is one. One that is broken delivers nothing.
	plugin    string
	broken    bool
	accessLog bool
}

// The rows of ours, which claims refer to.
const (
	rowOff      = "ours, off"
	rowLogged   = "ours, off, access log"
	rowRatio0   = "ours, ratio 0"
	rowRatio001 = "ours, ratio 0.01"
	rowRatio01  = "ours, ratio 0.1"
	rowRatio1   = "ours, ratio 1"
	rowHung     = "ours, ratio 1, plugin hung"
	rowDead     = "ours, ratio 1, plugin dead"
	rowCrashing = "ours, ratio 1, plugin crash-looping"
)

var ourRows = []row{
	{name: rowOff, by: byOurs, doc: "tracing off, access log off: proxy, router and one of two replicas"},
	{name: rowLogged, by: byOurs, accessLog: true, doc: "as a service runs by default: a line for each request, to a file"},
	{name: rowRatio0, by: byOurs, plugin: "plugins/otlp", ratio: "0", doc: "plugins/otlp runs, and nothing is sampled"},
	{name: rowRatio001, by: byOurs, plugin: "plugins/otlp", ratio: "0.01", doc: "one request in a hundred is sampled"},
	{name: rowRatio01, by: byOurs, plugin: "plugins/otlp", ratio: "0.1", doc: "one in ten"},
	{name: rowRatio1, by: byOurs, plugin: "plugins/otlp", ratio: "1", doc: "every request, and every span arrives at the sink"},
	{name: rowHung, by: byOurs, plugin: "plugins/hung", ratio: "1", broken: true, doc: "the plugin takes spans and never answers"},
	{name: rowDead, by: byOurs, plugin: "/bin/false", ratio: "1", broken: true, doc: "the plugin ends as soon as it is started, every time"},
	{name: rowCrashing, by: byOurs, plugin: "plugins/crashing", ratio: "1", broken: true, doc: "the plugin crashes at its first spans, every time"},
}

// scene is a shape: an application, the load on it, and who serves.
type scene struct {
	name, doc string
	app       string
	load      load
	// What a bare server is called, one that does nothing but give each request an
	// id, one with OpenTelemetry in process (empty: there is none), and a proxy
	// before a bare one.
	bare, headed, otel, proxy string
	// spans is how many a sampled request has, hops how many replicas it goes
	// through.
	spans, hops int
	// rows are all that run, quick those of bench-quick; the bare server and the
	// proxy by their names above.
	rows, quick []string
	repeats     int
	gate        gate
	// With these each row is measured beside another one, see against, and both
	// take turns. What the machine does to one it does to the other: only the ratio
	// of the two is worth anything.
	turns turns
}

// turns of two servers, n each, which count after a lead. In it what is left of the
// other's spans is sent: what is on its way, and a batch that was not full, whose 200 ms
// from the first span of a turn end in such a lead, that of the third turn after it
// or, where a turn takes so long, of the next. Where they end later, one server works
// in what counts for the other.
type turns struct {
	n            int
	lead, length time.Duration
}

// inTurns tells whether rows are measured beside another one.
func (s scene) inTurns() bool { return s.turns.n > 0 }

// against is the row that a row is measured beside: a plugin that is broken against
// one that is not, tracing against none, that against a bare server that does as much
// for a client, if the scene has it, and all else against a bare one.
func (s scene) against(r row) row {
	switch {
	case r.broken:
		return ourRow(rowRatio1)
	case r.by == byOurs && r.ratio != "":
		return ourRow(rowOff)
	case r.by == byOurs && slices.Contains(s.rows, s.headed):
		return s.headedRow()
	}
	return s.bareRow()
}

func (s scene) headedRow() row {
	return row{name: s.headed, by: byHeaded, doc: "the same, and each answer has an id of its request, as ours: what any server pays that does so"}
}

func ourRow(name string) row {
	return ourRows[slices.IndexFunc(ourRows, func(r row) bool { return r.name == name })]
}

func (s scene) bareRow() row {
	return row{name: s.bare, by: byBare, doc: "the same functions on a bare server"}
}

// load is what is done to a server.
type load struct {
	// connections is how many there are, streams how many calls each carries at a
	// time.
	connections, streams int
	// rate is how many requests are due a second; zero: as fast as answers come.
	rate float64
	// fortio: the load generator is not ours.
	fortio bool
	// warmUp is how long it lasts before anything counts: longer than it takes to
	// fill the queue before a plugin that takes nothing. length is how long it is
	// measured, if not in turns.
	warmUp, length time.Duration
}

const (
	bareHTTP   = "net/http"
	headedHTTP = "net/http, same header"
	otelHTTP   = "net/http, otelhttp, ratio 1"
	proxyHTTP  = "httputil.ReverseProxy"
	bareGRPC   = "grpc-go"
	headedGRPC = "grpc-go, same trailer"
	otelGRPC   = "grpc-go, otelgrpc, ratio 1"
	proxyGRPC  = "transparent gRPC proxy"
)

var brokenRows = []string{rowHung, rowDead, rowCrashing}

var headline = []string{bareHTTP, bareGRPC, rowOff, rowRatio0, rowRatio1}

// Rounds are short, for the neighbours of a virtual machine change their minds
// within seconds: a ratio is of rows that ran next to each other, or better of two
// that take turns, which are shorter still.
const (
	warmUp = 500 * time.Millisecond
	burst  = 400 * time.Millisecond

	turnWarmUp = 200 * time.Millisecond
)

// A server that sends no span leaves nothing to the other, and its turns are short: what
// neighbours take of the machine comes in pieces of milliseconds. Ten seconds of such
// turns told two servers that are the same apart by 1.8 %, ten of the longer ones by 3.2.
var (
	ofUnsampled = turns{n: 30, lead: 2 * time.Millisecond, length: 20 * time.Millisecond}
	ofSampled   = turns{n: 22, lead: 25 * time.Millisecond, length: 40 * time.Millisecond}
	ofBroken    = turns{n: 15, lead: 25 * time.Millisecond, length: 40 * time.Millisecond}
	ofFortio    = turns{n: 6, lead: 50 * time.Millisecond, length: 150 * time.Millisecond} // it is slower to begin

	ofFortioUnsampled = turns{n: 10, lead: 30 * time.Millisecond, length: 90 * time.Millisecond}
)

// So many pairs of processes take such turns: no two processes are alike, which alone is
// some 3 % in a ratio of two.
const (
	inUnsampled         = 9
	inUnsampledByFortio = 5
)

var scenes = []scene{
	{
		name: "hello", doc: "HTTP/1.1, 32 connections, each sends as soon as it has its answer",
		app: appHello, load: load{connections: 32, warmUp: warmUp, length: burst}, bare: bareHTTP, headed: headedHTTP, otel: otelHTTP, proxy: proxyHTTP, spans: 3, hops: 1,
		rows: allRows(bareHTTP, headedHTTP, otelHTTP, proxyHTTP), quick: headline, repeats: 3,
		gate: gate{cpu: 2.2, off: 3, unsampled: 3, sampled: 8},
	},
	{
		name: "chain", doc: "the same, JSON in and out, and three deployments that call each other by handle",
		app: appChain, load: load{connections: 32, warmUp: warmUp, length: burst}, bare: bareHTTP, otel: otelHTTP, proxy: proxyHTTP, spans: 7, hops: 3,
		rows: allRows(bareHTTP, otelHTTP, proxyHTTP), repeats: 3,
	},
	{
		name: "gRPC", doc: "a unary call, 4 connections with 8 calls at a time each",
		app: appEcho, load: load{connections: 4, streams: 8, warmUp: warmUp, length: burst}, bare: bareGRPC, headed: headedGRPC, otel: otelGRPC, proxy: proxyGRPC, spans: 3, hops: 1,
		rows: allRows(bareGRPC, headedGRPC, otelGRPC, proxyGRPC), quick: headline, repeats: 3,
		gate: gate{cpu: 1.75, off: 11, unsampled: 3, sampled: 8},
	},
	{
		name: "hello, nothing sampled, in turns", doc: "hello again: two servers take turns every 22 ms",
		app: appHello, load: load{connections: 32, warmUp: turnWarmUp}, bare: bareHTTP, headed: headedHTTP, spans: 3, hops: 1,
		rows: []string{headedHTTP, rowOff, rowRatio0}, repeats: inUnsampled, turns: ofUnsampled,
	},
	{
		name: "chain, nothing sampled, in turns", doc: "chain again, likewise",
		app: appChain, load: load{connections: 32, warmUp: turnWarmUp}, bare: bareHTTP, spans: 7, hops: 3,
		rows: []string{rowRatio0}, repeats: inUnsampled, turns: ofUnsampled,
	},
	{
		name: "gRPC, nothing sampled, in turns", doc: "gRPC again, likewise",
		app: appEcho, load: load{connections: 4, streams: 8, warmUp: turnWarmUp}, bare: bareGRPC, spans: 3, hops: 1,
		rows: []string{rowOff, rowRatio0}, repeats: inUnsampled, turns: ofUnsampled,
	},
	{
		name: "hello, in turns", doc: "hello again: two servers take turns every 65 ms",
		app: appHello, load: load{connections: 32, warmUp: turnWarmUp}, bare: bareHTTP, spans: 3, hops: 1,
		rows: []string{rowRatio1}, quick: []string{rowRatio1}, repeats: 5, turns: ofSampled,
	},
	{
		name: "chain, in turns", doc: "chain again, likewise",
		app: appChain, load: load{connections: 32, warmUp: turnWarmUp}, bare: bareHTTP, spans: 7, hops: 3,
		rows: []string{rowRatio1}, repeats: 5, turns: ofSampled,
	},
	{
		name: "gRPC, in turns", doc: "gRPC again, likewise",
		app: appEcho, load: load{connections: 4, streams: 8, warmUp: turnWarmUp}, bare: bareGRPC, spans: 3, hops: 1,
		rows: []string{rowRatio1}, repeats: 5, turns: ofSampled,
	},
	{
		name: "hello, plugin broken, in turns", doc: "hello with a plugin that is broken, and with one that is not",
		app: appHello, load: load{connections: 32, warmUp: warmUp}, bare: bareHTTP, spans: 3, hops: 1,
		rows: brokenRows, repeats: 2, turns: ofBroken,
	},
	{
		name: "chain, plugin broken, in turns", doc: "chain, likewise",
		app: appChain, load: load{connections: 32, warmUp: warmUp}, bare: bareHTTP, spans: 7, hops: 3,
		rows: brokenRows, repeats: 2, turns: ofBroken,
	},
	{
		name: "hello, 4k/s", doc: "HTTP/1.1, 32 connections, 4000 requests a second: a server with time to spare",
		app: appHello, load: load{connections: 32, rate: 4000, warmUp: warmUp, length: 2 * burst}, bare: bareHTTP, proxy: proxyHTTP, spans: 3, hops: 1,
		rows: []string{bareHTTP, proxyHTTP, rowOff, rowRatio0, rowRatio1, rowHung}, repeats: 2,
	},
	{
		name: "hello, nothing sampled, in turns, by fortio", doc: "two servers take turns every 120 ms; the load generator is fortio",
		app: appHello, load: load{connections: 32, fortio: true, warmUp: turnWarmUp}, bare: bareHTTP, headed: headedHTTP, spans: 3, hops: 1,
		rows: []string{headedHTTP, rowOff, rowRatio0}, repeats: inUnsampledByFortio, turns: ofFortioUnsampled,
	},
	{
		name: "gRPC, nothing sampled, in turns, by fortio", doc: "likewise",
		app: appEcho, load: load{connections: 4, streams: 8, fortio: true, warmUp: turnWarmUp}, bare: bareGRPC, spans: 3, hops: 1,
		rows: []string{rowOff, rowRatio0}, repeats: inUnsampledByFortio, turns: ofFortioUnsampled,
	},
	{
		name: "hello, in turns, by fortio", doc: "two servers take turns every 200 ms; the load generator is fortio",
		app: appHello, load: load{connections: 32, fortio: true, warmUp: turnWarmUp}, bare: bareHTTP, spans: 3, hops: 1,
		rows: []string{rowRatio1}, repeats: 3, turns: ofFortio,
	},
	{
		name: "gRPC, in turns, by fortio", doc: "likewise",
		app: appEcho, load: load{connections: 4, streams: 8, fortio: true, warmUp: turnWarmUp}, bare: bareGRPC, spans: 3, hops: 1,
		rows: []string{rowRatio1}, repeats: 3, turns: ofFortio,
	},
}

// allRows are those of a scene with these peers, without those that are broken.
func allRows(peers ...string) []string {
	names := peers
	for _, r := range ourRows {
		if !r.broken {
			names = append(names, r.name)
		}
	}
	return names
}

// Set gives all cases and claims of the suite.
func Set() suite.Set {
	var set suite.Set
	for _, s := range scenes {
		peers := []row{
			s.bareRow(),
			s.headedRow(),
			{name: s.otel, by: byOTel, ratio: "1", doc: "the same, with OpenTelemetry's instrumentation, batch processor and OTLP/HTTP exporter in process: one span a request, and one for each link of a chain"},
			{name: s.proxy, by: byProxy, doc: "a proxy process before that server"},
		}
		for _, r := range append(peers, ourRows...) {
			if !slices.Contains(s.rows, r.name) {
				continue
			}
			set.Cases = append(set.Cases, suite.Case{
				Suite: Name, Shape: s.name, Row: r.name, Doc: r.doc, Quick: slices.Contains(s.quick, r.name), Repeats: s.repeats,
				Run: func(ctx context.Context, env *suite.Env) (suite.Sample, error) { return s.run(ctx, env, r) },
			})
		}
		set.Claims = append(set.Claims, s.claims()...)
	}
	return set
}
