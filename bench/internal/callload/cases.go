// Package callload measures a call of a function: by handle in one process, by handle in
// another process, and with grpc-go alone.
//
//  1. Each row has a process with callers, and another with callees unless it is local. All
//     functions echo the same message.
//  2. Both processes are idle while their CPU time is read, before and after the calls. The
//     cost of a call is of both together.
//  3. The rows take short turns, so that a change of the machine's speed affects all of
//     them.
//
// Tracing is off. Open cases.go first, then run.go and roles.go.
package callload

import (
	"context"
	"time"

	"github.com/servetrace/servetrace/bench/internal/child"
	"github.com/servetrace/servetrace/bench/internal/suite"
)

// The names of the rows.
const (
	rowGRPC       = "grpc-go"
	rowLocal      = "handle, in one process"
	rowRemote     = "handle, another process"
	rowIdempotent = "idempotent handle, another process"
	rowJSON       = "handle, another process, JSON"
	rowMany       = "handle, 64 others"
	rowManyGRPC   = "grpc-go, 64 others"
)

// row is a kind of call, with the number of callees. All callees of a row share a process,
// but each has its own server, address and connection.
type row struct {
	by      string
	callees int
}

var rows = map[string]row{
	rowGRPC:       {byGRPC, 1},
	rowLocal:      {byHandle, 0},
	rowRemote:     {byHandle, 1},
	rowIdempotent: {byIdempotent, 1},
	rowJSON:       {byJSON, 1},
	rowMany:       {byHandle, 64},
	rowManyGRPC:   {byGRPC, 64},
}

// scene is a number of callers, and the turns of the rows.
type scene struct {
	suite.Shape
	callers int
	turns
}

// turns are n turns of each row, of the given length.
type turns struct {
	n              int
	length, warmUp time.Duration
}

var usual = turns{n: 24, length: 25 * time.Millisecond, warmUp: 400 * time.Millisecond}

// The metrics.
const (
	calls  = "calls/s"
	cpu    = "CPU both processes, ns/call"
	allocs = "allocations both processes, /call"
	p50    = "p50, ms"
	p99    = "p99, ms"
)

var scenes = []scene{
	{
		Shape: suite.Shape{
			Name: "calls, 32 at a time", Rows: []string{rowGRPC, rowLocal, rowRemote, rowIdempotent, rowJSON},
			Quick: []string{rowGRPC, rowRemote}, Repeats: 7, Claims: []suite.Claim{cost},
		},
		callers: 32, turns: usual,
	},
	{
		Shape: suite.Shape{
			Name: "calls, one at a time", Rows: []string{rowGRPC, rowLocal, rowRemote, rowIdempotent, rowMany, rowManyGRPC},
			Quick: []string{rowGRPC, rowRemote, rowMany, rowManyGRPC}, Repeats: 7, Claims: []suite.Claim{cost, late, flat},
		},
		callers: 1, turns: usual,
	},
}

var (
	cost = suite.NewRatio("CPU of a call to another process, vs grpc-go", cpu, rowRemote, rowGRPC, 1.5, 1.25).Gated()
	// 64 connections cost grpc and the kernel more than one, for bare grpc-go as well.
	flat = suite.Claim{
		Name: "CPU of a call with 64 other processes, vs 1, over the same of grpc-go", Unit: "×", Bound: 1.2,
		Value: func(r suite.Round) float64 {
			return r.Ratio(cpu, rowMany, rowRemote) / r.Ratio(cpu, rowManyGRPC, rowGRPC)
		},
	}.Gated()
	late = suite.Claim{Name: "p99 of a call to another process", Unit: " ms", Bound: 1, Value: func(r suite.Round) float64 { return r.Get(rowRemote, p99) }}
)

// Roles has the roles of the processes.
var Roles = map[string]child.Role{roleCallees: runCallees, roleCallers: runCallers}

// Shapes returns all shapes.
func Shapes() []suite.Shape {
	var list []suite.Shape
	for _, s := range scenes {
		s.Together = true
		s.Run = func(ctx context.Context, _ *suite.Env, rows []string) (suite.Round, error) {
			return s.run(ctx, rows)
		}
		list = append(list, s.Shape)
	}
	return list
}
