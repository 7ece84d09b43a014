// Package serveload measures the cost of a request: with our server, with tracing off,
// at several ratios and with broken plugins, and with a bare server.
//
//  1. A child process runs each server of a scene with an application of server.go.
//     This process opens the connections of the load, and warms the servers up.
//  2. All is idle while the CPU time and the allocations of the servers are read, before
//     and after the load. The load has all answers by then, so that the usage is divided
//     by the server's own requests. Only the plugin may still have spans to send.
//  3. The servers take short turns under load, so that a change of the machine's speed
//     affects all of them.
//  4. Each server stops and reports its delivery accounting. A span that has not arrived at
//     the sink is an error, unless the plugin is broken.
package serveload

import (
	"context"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// row is a server under load.
type row struct {
	by string
	// ratio is the sampling ratio. If it is empty, tracing is off.
	ratio string
	// The other fields belong to our server. A broken plugin delivers nothing: its
	// exporter is one of benchplugin's, or it ends at once.
	broken    string
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
}

// scene is an application, and the turns of its servers.
type scene struct {
	suite.Shape
	app string
	turns
}

// turns are n turns of each server, of the given length. The lead of a turn does not
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
		app: appHello, turns: usual,
	},
	{
		Shape: suite.Shape{
			Name: "gRPC", Rows: []string{rowBareGRPC, rowHeadedGRPC, rowOff, rowLogged, rowRatio0, rowRatio01, rowRatio1},
			Quick: []string{rowBareGRPC, rowOff, rowRatio0, rowRatio1}, Repeats: 7, Claims: claimsGRPC,
		},
		app: appEcho, turns: usual,
	},
	{
		Shape: suite.Shape{Name: "hello, plugin broken", Rows: []string{rowRatio1, rowHung, rowDead, rowCrashing}, Repeats: 3, Claims: claimsBroken},
		app:   appHello, turns: usual,
	},
}

// Roles has the role of the server processes.
var Roles = map[string]child.Role{roleServer: runServer}

// Shapes returns all shapes.
func Shapes() []suite.Shape {
	var list []suite.Shape
	for _, s := range scenes {
		s.Together = true
		s.Run = func(ctx context.Context, env *suite.Env, rows []string) (suite.Round, error) {
			return s.run(ctx, env, rows)
		}
		list = append(list, s.Shape)
	}
	return list
}
