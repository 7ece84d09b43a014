// Package proctree finds the descendants of a plugin that its process group
// does not have: those that made a session of their own (setsid), whatever
// became of their parents. What they can not shed is the environment that they
// were started with, and in it the plugin's private folder, which no other
// process has: that is their mark.
//
//  1. Kill ends all processes with a mark, at a plugin's end.
//  2. Await gives them time to end by themselves before that.
//  3. Reap collects those of a group that fell to this process, where it is the
//     one that orphans fall to.
//
// It looks at processes of this user alone, never at this process, and reads
// the environment that a process was started with: one that was started with an
// empty one is not found. It takes one look at /proc, some 10 µs for each
// process of this user. Where there is no /proc, as on macOS, it finds nothing.
//
// Open proctree_linux.go first.
package proctree

// Mark is a variable and the values of it that mark a process.
type Mark struct {
	// Variable is its name.
	Variable string
	// Is tells whether the value is the mark. It must not be nil.
	Is func(value string) bool
}
