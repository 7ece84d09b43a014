// Package archtest holds the rules of this repository's architecture as tests:
// which package may import which, what a plugin must not link, that every
// package says what it is, and how long a file may grow. The modules below
// test/ are held to what does not concern imports, too.
//
// The tests read the module's files themselves, and run no go command: go test
// notes which files a test opens and runs it again when one has changed, but
// it does not see what a child process reads, and would give a stale answer.
//
// The package has no code of its own beside this comment and is imported by
// nothing. Open imports_test.go first: its table is the map of the repository.
package archtest
