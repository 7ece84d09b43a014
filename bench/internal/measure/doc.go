// Package measure reads what a measurement rests on: the CPU time, memory and
// allocations of processes, and whether the machine was otherwise idle; and it
// makes figures of it: medians with their spread, and percentiles.
//
// CPU time comes from the kernel's clock of each process, to the nanosecond,
// not from ticks of 10 ms. Whether somebody else used the machine comes from
// /proc/stat: what all processors were busy for, less what our processes used.
//
// It does not run anything and knows of no case. Open process.go first, then
// gate.go and stats.go.
package measure
