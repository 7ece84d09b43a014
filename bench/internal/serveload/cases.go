// Package serveload measures the cost of a request and of a call of a function. A request
// is answered by our server, with tracing off, at several ratios and with broken plugins,
// or by a bare server. A call is made by handle, in one process or to another process, or
// by grpc-go alone, with tracing off.
//
//  1. A child process runs the servers of each row (server.go). Another child process opens
//     the connections of the load (load.go), and warms the servers up.
//  2. All is idle while the CPU time and the allocations of the processes are read, before
//     and after the load. The load has all answers by then, so that the usage is divided
//     by the row's own requests. Only the plugin may still have spans to send.
//  3. The rows take short turns under load, so that a change of the machine's speed
//     affects all of them.
//  4. Each server stops and reports its delivery accounting. A span that has not arrived at
//     the sink is an error, unless the plugin is broken.
//
// Open cases.go first, then run.go.
package serveload

import (
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// row has a kind of servers, and a load on them.
type row struct {
	by string
	// ratio is the sampling ratio. If it is empty, tracing is off.
	ratio string
	// A broken plugin of our server delivers nothing: its exporter is one of
	// benchplugin's, or it ends at once.
	broken    string
	accessLog bool
	// local means that functions run in the caller's process. Otherwise a row has servers
	// in a process, each with its own address and connection. Zero servers are one.
	local   bool
	servers int
}

// The names of the rows. The row of bare grpc-go has requests and calls.
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

	rowLocal      = "handle, in one process"
	rowRemote     = "handle, another process"
	rowIdempotent = "idempotent handle, another process"
	rowJSON       = "handle, another process, JSON"
	rowMany       = "handle, 64 others"
	rowManyGRPC   = "grpc-go, 64 others"
)

const pluginDead = "dead"

// rows are described in bench/README.md.
var rows = map[string]row{
	rowBareHTTP:   {by: byBare},
	rowHeadedHTTP: {by: byHeaded},
	rowThreeSpans: {by: byThreeSpans, ratio: "1"},
	rowBareGRPC:   {by: byBare},
	rowHeadedGRPC: {by: byHeaded},
	rowOff:        {by: byOurs},
	rowLogged:     {by: byOurs, accessLog: true},
	rowRatio0:     {by: byOurs, ratio: "0"},
	rowRatio01:    {by: byOurs, ratio: "0.1"},
	rowRatio1:     {by: byOurs, ratio: "1"},
	rowHung:       {by: byOurs, ratio: "1", broken: "hung"},
	rowDead:       {by: byOurs, ratio: "1", broken: pluginDead},
	rowCrashing:   {by: byOurs, ratio: "1", broken: "crashing"},

	rowLocal:      {by: byHandle, local: true},
	rowRemote:     {by: byHandle},
	rowIdempotent: {by: byIdempotent},
	rowJSON:       {by: byJSON},
	rowMany:       {by: byHandle, servers: 64},
	rowManyGRPC:   {by: byBare, servers: 64},
}

// scene is an application under a load, and the turns of its rows.
type scene struct {
	suite.Shape
	app string
	// callers is the number of requests or calls that are in flight, and connections the
	// number of gRPC connections to a server.
	callers, connections int
	// calls means that the figures are of calls, and of the processes on both sides.
	calls bool
	turns
}

// turns are n turns of each row, of the given length. The lead of a turn does not
// count, because spans of the server before are sent in it. The warm-up is long enough
// to fill the queue of a hung plugin.
type turns struct {
	n                    int
	lead, length, warmUp time.Duration
}

var usual = turns{n: 24, lead: 5 * time.Millisecond, length: 25 * time.Millisecond, warmUp: 400 * time.Millisecond}

// Two processes of the same server differ by some 3 %. So a scene has several rounds,
// each with new processes.
var scenes = []scene{
	{
		Shape: suite.Shape{
			Name: "hello", Rows: []string{rowBareHTTP, rowHeadedHTTP, rowThreeSpans, rowOff, rowLogged, rowRatio0, rowRatio01, rowRatio1},
			Quick: []string{rowBareHTTP, rowHeadedHTTP, rowThreeSpans, rowOff, rowRatio0, rowRatio1}, Repeats: 7, Claims: claimsHello,
		},
		app: appHello, callers: 32, turns: usual,
	},
	{
		Shape: suite.Shape{
			Name: "gRPC", Rows: []string{rowBareGRPC, rowHeadedGRPC, rowOff, rowLogged, rowRatio0, rowRatio01, rowRatio1},
			Quick: []string{rowBareGRPC, rowOff, rowRatio0, rowRatio1}, Repeats: 7, Claims: claimsGRPC,
		},
		app: appEcho, callers: 32, connections: 4, turns: usual,
	},
	{
		Shape: suite.Shape{Name: "hello, plugin broken", Rows: []string{rowRatio1, rowHung, rowDead, rowCrashing}, Repeats: 3, Claims: claimsBroken},
		app:   appHello, callers: 32, turns: usual,
	},
	{
		Shape: suite.Shape{
			Name: "calls, 32 at a time", Rows: []string{rowBareGRPC, rowLocal, rowRemote, rowIdempotent, rowJSON},
			Quick: []string{rowBareGRPC, rowRemote}, Repeats: 7, Claims: []suite.Claim{costOfCall},
		},
		app: appEcho, callers: 32, connections: 1, calls: true, turns: usual,
	},
	{
		Shape: suite.Shape{
			Name: "calls, one at a time", Rows: []string{rowBareGRPC, rowLocal, rowRemote, rowIdempotent, rowMany, rowManyGRPC},
			Quick: []string{rowBareGRPC, rowRemote, rowMany, rowManyGRPC}, Repeats: 7, Claims: []suite.Claim{costOfCall, lateCall, costOfMany},
		},
		app: appEcho, callers: 1, connections: 1, calls: true, turns: usual,
	},
}

// Roles has the roles of the servers' and the callers' processes.
var Roles = map[string]child.Role{roleServers: runServers, roleCallers: runCallers}

// Shapes returns all shapes.
func Shapes() []suite.Shape {
	var list []suite.Shape
	for _, s := range scenes {
		s.Run = s.run
		list = append(list, s.Shape)
	}
	return list
}

// The metrics.
const (
	requests  = "requests/s"
	cpuServer = "CPU server, ns/request"
	cpuPlugin = "CPU plugin, ns/request"
	cpuTotal  = "CPU total, ns/request"
	allocs    = "allocations server, /request"

	calls      = "calls/s"
	cpuCall    = "CPU both processes, ns/call"
	allocsCall = "allocations both processes, /call"
	p50        = "p50, ms"
	p99        = "p99, ms"
)

var (
	claimsHello = append(claimsOf(rowBareHTTP, rowHeadedHTTP, 25),
		// Our server adds proxy, router, host and plugin, and saves the batch processor
		// and the exporter. The bound is the median of three runs, 0.99, and 10 %.
		suite.NewRatio("all CPU a request with three spans, vs three SDK spans in process", cpuTotal, rowRatio1, rowThreeSpans, 1.09, 0.70).Gated())
	claimsGRPC   = claimsOf(rowBareGRPC, rowBareGRPC, 50)
	claimsBroken = []suite.Claim{lostBy(rowHung), lostBy(rowDead), lostBy(rowCrashing)}

	costOfCall = suite.NewRatio("CPU of a call to another process, vs grpc-go", cpuCall, rowRemote, rowBareGRPC, 1.5, 1.25).Gated()
	// 64 connections cost grpc and the kernel more than one, for bare grpc-go as well.
	costOfMany = suite.Claim{
		Name: "CPU of a call with 64 other processes, vs 1, over the same of grpc-go", Unit: "×", Bound: 1.2,
		Value: func(r suite.Round) float64 {
			return r.Ratio(cpuCall, rowMany, rowRemote) / r.Ratio(cpuCall, rowManyGRPC, rowBareGRPC)
		},
	}.Gated()
	lateCall = suite.Claim{Name: "p99 of a call to another process", Unit: " ms", Bound: 1, Value: func(r suite.Round) float64 { return r.Get(rowRemote, p99) }}
)

// claimsOf returns the bounds on the cost of a request, compared with the row of. With
// tracing off, it allocates at most some objects more than the bare server.
func claimsOf(bare, of string, objects float64) []suite.Claim {
	return []suite.Claim{
		suite.NewRatio("server's CPU a request with tracing off, vs "+of, cpuServer, rowOff, of, 1.40, 1.25).Gated(),
		suite.NewRatio("server's CPU a request at ratio 0, vs off", cpuServer, rowRatio0, rowOff, 1.05, 1.03),
		more("allocations a request with tracing off, beyond "+bare, rowOff, bare, objects),
		more("allocations a request at ratio 0, beyond off", rowRatio0, rowOff, 10),
		more("allocations a request at ratio 1, beyond off", rowRatio1, rowOff, 75),
	}
}

// more bounds the allocations of a row beyond another row.
func more(name, row, than string, bound float64) suite.Claim {
	return suite.Claim{Name: name, Bound: bound, Value: func(r suite.Round) float64 { return r.Get(row, allocs) - r.Get(than, allocs) }}.GatedAt(bound)
}

// lostBy bounds the throughput that a row with a broken plugin loses, in percent.
func lostBy(row string) suite.Claim {
	return suite.Claim{Name: "throughput lost by a broken plugin (" + row + "), vs ratio 1", Unit: "%", Bound: 2, Value: func(r suite.Round) float64 {
		return 100 * (1 - r.Ratio(requests, row, rowRatio1))
	}}
}
