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
	// ratio of the requests is sampled; empty: tracing is off.
	ratio string
	// The rest is for ours only. The plugin is a file of Env.Bin, or an absolute
	// path. A broken plugin delivers nothing.
	plugin    string
	broken    bool
	accessLog bool
}

// The names of the rows, which claims refer to.
const (
	rowBareHTTP   = "net/http"
	rowHeadedHTTP = "net/http, request id"
	rowThreeSpans = "net/http, request id, three SDK spans, ratio 1"
	rowBareGRPC   = "grpc-go"
	rowHeadedGRPC = "grpc-go, request id"
	rowOff        = "ours, off"
	rowLogged     = "ours, off, access log"
	rowRatio0     = "ours, ratio 0"
	rowRatio01    = "ours, ratio 0.1"
	rowRatio1     = "ours, ratio 1"
	rowHung       = "ours, ratio 1, plugin hung"
	rowDead       = "ours, ratio 1, plugin dead"
	rowCrashing   = "ours, ratio 1, plugin crash-looping"
)

const otlpPlugin = "plugins/otlp"

var rows = []row{
	{name: rowBareHTTP, by: byBare, doc: "the same handler on a bare server"},
	{name: rowHeadedHTTP, by: byHeaded, doc: "the same, and each answer tells a request id, as ours does"},
	{name: rowThreeSpans, by: byThreeSpans, ratio: "1", doc: "the same, and its handler makes the three spans of ours with OpenTelemetry's SDK; batch processor and otlptracehttp in process"},
	{name: rowBareGRPC, by: byBare, doc: "the same service on a bare server"},
	{name: rowHeadedGRPC, by: byHeaded, doc: "the same, and each answer tells a request id, as ours does"},
	{name: rowOff, by: byOurs, doc: "tracing off, access log off: proxy, router and one of two replicas"},
	{name: rowLogged, by: byOurs, accessLog: true, doc: "as a service runs by default: a line for each request, to a file"},
	{name: rowRatio0, by: byOurs, plugin: otlpPlugin, ratio: "0", doc: "plugins/otlp runs, and nothing is sampled"},
	{name: rowRatio01, by: byOurs, plugin: otlpPlugin, ratio: "0.1", doc: "one request in ten is sampled"},
	{name: rowRatio1, by: byOurs, plugin: otlpPlugin, ratio: "1", doc: "every request is sampled, and every span arrives at the sink"},
	{name: rowHung, by: byOurs, plugin: "plugins/hung", ratio: "1", broken: true, doc: "the plugin takes spans and never answers"},
	{name: rowDead, by: byOurs, plugin: "/bin/false", ratio: "1", broken: true, doc: "the plugin ends as soon as it is started, every time"},
	{name: rowCrashing, by: byOurs, plugin: "plugins/crashing", ratio: "1", broken: true, doc: "the plugin crashes at its first spans, every time"},
}

func findRow(name string) row {
	return rows[slices.IndexFunc(rows, func(r row) bool { return r.name == name })]
}

// scene is a shape: an application, the load on it, and the servers.
type scene struct {
	name, doc string
	app       string
	load      load
	// rows are all that run, quick those of bench-quick and bench-gate.
	rows, quick []string
	repeats     int
	// bare is the row that allocations are compared with; empty: they are not.
	bare string
	gate gate
	// beside is the row that takes turns with each of rows; empty: no turns. The
	// machine does the same to both, so that only their ratio is worth anything.
	beside string
	turns  turns
}

// turns are those of two servers: n each. A turn counts after its lead, in which
// the spans that the other server left are sent. The age limit of a batch, 200 ms
// from its first span, ends within a lead: that of the third turn after it.
type turns struct {
	n            int
	lead, length time.Duration
}

func (s scene) inTurns() bool { return s.beside != "" }

// load is what is done to a server.
type load struct {
	// connections is how many there are, streams how many calls each carries at a
	// time.
	connections, streams int
	// warmUp lasts longer than it takes to fill the queue of a plugin that takes
	// nothing. length is the time that is measured, if there are no turns.
	warmUp, length time.Duration
}

var (
	loadHTTP = load{connections: 32, warmUp: 500 * time.Millisecond, length: 400 * time.Millisecond}
	loadGRPC = load{connections: 4, streams: 8, warmUp: 500 * time.Millisecond, length: 400 * time.Millisecond}
)

// Turns are short, because the neighbours of a virtual machine change their minds
// within seconds. A server that sends no span leaves nothing to the other one.
var (
	turnsUnsampled = turns{n: 30, lead: 2 * time.Millisecond, length: 20 * time.Millisecond}
	turnsSampled   = turns{n: 22, lead: 25 * time.Millisecond, length: 40 * time.Millisecond}
)

// No two processes are alike: two of the same server differ by some 3 %. So
// several pairs of processes take turns.
const (
	pairsUnsampled = 7
	pairsSampled   = 5
	pairsBroken    = 2
)

var scenes = []scene{
	{
		name: "hello", doc: "HTTP/1.1, 32 connections, each sends as soon as it has its answer", app: appHello, load: loadHTTP,
		rows:  []string{rowBareHTTP, rowHeadedHTTP, rowThreeSpans, rowOff, rowLogged, rowRatio0, rowRatio01, rowRatio1},
		quick: []string{rowBareHTTP, rowOff, rowRatio0, rowRatio1}, repeats: 3,
		bare: rowBareHTTP, gate: gate{off: 25, unsampled: 10, sampled: 75},
	},
	{
		name: "gRPC", doc: "a unary call, 4 connections with 8 calls at a time each", app: appEcho, load: loadGRPC,
		rows:  []string{rowBareGRPC, rowHeadedGRPC, rowOff, rowLogged, rowRatio0, rowRatio01, rowRatio1},
		quick: []string{rowBareGRPC, rowOff, rowRatio0, rowRatio1}, repeats: 3,
		bare: rowBareGRPC, gate: gate{off: 50, unsampled: 10, sampled: 75},
	},
	{
		name: "hello, three spans, in turns", doc: "hello: ours and the same three spans by the SDK in process take turns", app: appHello, load: loadHTTP,
		beside: rowThreeSpans, rows: []string{rowRatio1}, quick: []string{rowRatio1}, repeats: pairsSampled, turns: turnsSampled,
	},
	{
		name: "hello, tracing off, in turns", doc: "hello: ours and a bare server that tells a request id take turns", app: appHello, load: loadHTTP,
		beside: rowHeadedHTTP, rows: []string{rowOff}, quick: []string{rowOff}, repeats: pairsUnsampled, turns: turnsUnsampled,
	},
	{
		name: "gRPC, tracing off, in turns", doc: "gRPC: ours and a bare server take turns", app: appEcho, load: loadGRPC,
		beside: rowBareGRPC, rows: []string{rowOff}, quick: []string{rowOff}, repeats: pairsUnsampled, turns: turnsUnsampled,
	},
	{
		name: "hello, nothing sampled, in turns", doc: "hello: ours at ratio 0 and with tracing off take turns", app: appHello, load: loadHTTP,
		beside: rowOff, rows: []string{rowRatio0}, repeats: pairsUnsampled, turns: turnsUnsampled,
	},
	{
		name: "gRPC, nothing sampled, in turns", doc: "gRPC, likewise", app: appEcho, load: loadGRPC,
		beside: rowOff, rows: []string{rowRatio0}, repeats: pairsUnsampled, turns: turnsUnsampled,
	},
	{
		name: "hello, plugin broken, in turns", doc: "hello: ours with a plugin that is broken, and with one that is not, take turns", app: appHello, load: loadHTTP,
		beside: rowRatio1, rows: []string{rowHung, rowDead, rowCrashing}, repeats: pairsBroken, turns: turnsSampled,
	},
}

// Set returns all cases and claims of the suite.
func Set() suite.Set {
	var set suite.Set
	for _, s := range scenes {
		for _, name := range s.rows {
			r := findRow(name)
			set.Cases = append(set.Cases, suite.Case{
				Suite: Name, Shape: s.name, Row: r.name, Doc: r.doc, Quick: slices.Contains(s.quick, r.name), Repeats: s.repeats,
				Run: func(ctx context.Context, env *suite.Env) (suite.Sample, error) { return s.run(ctx, env, r) },
			})
		}
		set.Claims = append(set.Claims, s.claims()...)
	}
	return set
}
