// Package remote has the tests of deployments in several processes, which are killed,
// frozen and replaced under load. The test binary is each of the processes.
//
// A test starts processes by [start], calls them, and reads the events that they print.
// Open process_test.go first, then remote_test.go.
package remote
