// Command servetrace is the command line of servetrace. It answers
//
//	servetrace version
//
// and, by its help, what the project is and which variables start it. It does
// not serve: a service is a Go program that uses the root package, and
// examples/hello is one.
//
// A run has three steps: the command tree is built (root.go), cobra picks the
// command by the arguments, and the command writes its answer to standard
// output; an error goes to standard error and ends the program with status 1.
// Open root.go first.
package main

import "os"

func main() {
	if err := newRoot().Execute(); err != nil {
		os.Exit(1) // cobra has printed it
	}
}
