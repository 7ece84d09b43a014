// Command chaos proves that failures of plugins do not affect requests, do not lose spans
// silently, and leave nothing behind. It runs the real hello under steady load with real
// plugins, and breaks the plugins at random.
//
//	make chaos [CHAOS_SEED=1] [CHAOS_DURATION=2m]
//
// A run has three phases:
//
//  1. It copies the programs of bin/ into a temporary folder and starts hello with four
//     plugins: two in a folder, a pinned plugin, and a plugin that chaos runs itself and
//     hello attaches to.
//  2. It sends load without faults, for comparison, and then load with random faults.
//     Then it ends all faults and sends SIGHUP to hello. Every plugin must deliver a later
//     request.
//  3. It sends SIGTERM to hello. It compares the delivery accounting in hello's last log
//     line with the output of each plugin, and searches for leftovers. If a promise is
//     broken, it prints the journal of the faults, keeps the folder and exits with
//     status 1.
//
// The same seed gives the same faults at the same times, although their effects vary. The
// program measures latencies and does not check them. It needs Linux, because it reads
// /proc.
//
// The same binary also serves as two of the four plugins and as the CPU hog, see roles.go.
// Open main.go first. schedule.go draws the faults, faults.go performs them, and
// verdict.go checks the results.
package main
