// Package serveload measures the cost of a request: with our server, with tracing off,
// at several ratios and with broken plugins, and with a bare server.
//
//  1. A child process runs the server with an application of app.go. Another child
//     opens the connections of the load, and warms the server up.
//  2. Both are idle while the server's CPU time and allocations are read, before and
//     after the load. The load has all answers by then, so that the usage is divided by
//     its own requests. Only the plugin may still have spans to send.
//  3. In turns, two servers alternate, and only their ratio counts, because a change of
//     the machine's speed affects both.
//  4. The server stops and reports its span account. A span that has not arrived at the
//     sink is an error, unless the plugin is broken.
package serveload

import (
	"context"
	"slices"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Name is the name of the suite.
const Name = "serving"

// row is a server under load.
type row struct {
	name, doc string
	by        string
	// ratio is the sampling ratio. If it is empty, tracing is off.
	ratio string
	// The other fields belong to our server. The plugin is a file of Env.Bin, or an
	// absolute path. A broken plugin delivers nothing.
	plugin    string
	broken    bool
	accessLog bool
}

// The names of the rows.
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
	{name: rowHeadedHTTP, by: byHeaded, doc: "the same, and each answer has a request id, as with our server"},
	{name: rowThreeSpans, by: byThreeSpans, ratio: "1", doc: "the same, and its handler makes the three spans of our server with OpenTelemetry's SDK; batch processor and otlptracehttp in process"},
	{name: rowBareGRPC, by: byBare, doc: "the same service on a bare server"},
	{name: rowHeadedGRPC, by: byHeaded, doc: "the same, and each answer has a request id, as with our server"},
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
	// quick are the rows of bench-quick and bench-gate.
	rows, quick []string
	repeats     int
	// bare is the row whose allocations are the reference of gate.
	bare string
	gate gate
	// beside is the row that takes turns with each of rows. If it is empty, there are no
	// turns.
	beside string
	turns  turns
}

// turns are n turns of each server. The lead of a turn does not count: the spans of the
// other server are sent in it. The age limit of a batch, 200 ms after its first span,
// ends within the lead of the third turn.
type turns struct {
	n            int
	lead, length time.Duration
}

func (s scene) inTurns() bool { return s.beside != "" }

// load is a load of requests.
type load struct {
	// streams is the number of concurrent calls on a connection.
	connections, streams int
	// warmUp is long enough to fill the queue of a hung plugin. length is the time of
	// the measurement, without turns.
	warmUp, length time.Duration
}

var (
	loadHTTP = load{connections: 32, warmUp: 500 * time.Millisecond, length: 400 * time.Millisecond}
	loadGRPC = load{connections: 4, streams: 8, warmUp: 500 * time.Millisecond, length: 400 * time.Millisecond}
)

// Turns are short, because the speed of a virtual machine changes within seconds. A
// server without spans needs a short lead.
var (
	turnsUnsampled = turns{n: 30, lead: 2 * time.Millisecond, length: 20 * time.Millisecond}
	turnsSampled   = turns{n: 22, lead: 25 * time.Millisecond, length: 40 * time.Millisecond}
)

// Two processes of the same server differ by some 3 %. So several pairs take turns.
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
		name: "hello, tracing off, in turns", doc: "hello: ours and a bare server with request ids take turns", app: appHello, load: loadHTTP,
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
		name: "hello, plugin broken, in turns", doc: "hello: ours with a broken plugin and with a working plugin take turns", app: appHello, load: loadHTTP,
		beside: rowRatio1, rows: []string{rowHung, rowDead, rowCrashing}, repeats: pairsBroken, turns: turnsSampled,
	},
}

// Roles has the roles of the suite's child processes.
var Roles = map[string]child.Role{roleServer: RunServer, roleLoad: runLoad}

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
