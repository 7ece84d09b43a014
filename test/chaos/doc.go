// Command chaos proves that nothing which is done to plugins reaches a request,
// loses a span without a word, or leaves anything behind: it runs the real
// hello under steady load with real plugins, and breaks these at random.
//
//	make chaos [CHAOS_SEED=1] [CHAOS_DURATION=2m]
//
// Its life:
//
//  1. It puts copies of the programs of bin/ into a folder of its own and
//     starts hello with four plugins: two of a folder, one that is pinned, and
//     one that it runs itself and hello attaches to.
//  2. Load without faults, to compare with; load while faults come and go, as
//     the seed has drawn them; then all faults are undone, hello gets SIGHUP,
//     and every plugin must deliver a request that is sent after.
//  3. SIGTERM. Then it reads hello's last line, which has the books, and what
//     each plugin really wrote, looks for what was left, and says what it
//     found; status 1 means that a promise is broken, and then the journal of
//     the faults is printed and the folder is kept.
//
// The same seed draws the same faults at the same times; what a machine does
// with them is never the same twice. It measures latencies and asserts none. It
// needs Linux, for it reads /proc.
//
// This program is also two of the four plugins, and what takes their CPU away:
// see roles.go. Open main.go first; schedule.go draws the faults, faults.go is
// what each does, verdict.go what has to hold in the end.
package main
