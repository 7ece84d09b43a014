package serveload

import "github.com/servetrace/servetrace/bench/internal/suite"

// The metrics.
const (
	requests  = "requests/s"
	cpuServer = "CPU server, ns/request"
	cpuPlugin = "CPU plugin, ns/request"
	cpuTotal  = "CPU total, ns/request"
	allocs    = "allocations server, /request"
)

var (
	claimsHello = append(claimsOf(rowBareHTTP, rowHeadedHTTP, 25),
		// Our server adds proxy, router, host and plugin, and saves the batch processor
		// and the exporter. The bound is the median of three runs, 0.99, and 10 %.
		suite.NewRatio("all CPU a request with three spans, vs three SDK spans in process", cpuTotal, rowRatio1, rowThreeSpans, 1.09, 0.70).Gated())
	claimsGRPC   = claimsOf(rowBareGRPC, rowBareGRPC, 50)
	claimsBroken = []suite.Claim{lostBy(rowHung), lostBy(rowDead), lostBy(rowCrashing)}
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
