// Package proctree finds descendants of a plugin outside its process group, such as a process
// that has started its own session (setsid). It finds them by a mark in the environment with
// which they were started. The mark is a variable that has the path of the plugin's private
// folder. Only this plugin and its descendants have this value.
//
//  1. Kill kills all processes with a mark, after the plugin has ended.
//  2. Await waits until all processes with a mark have ended by themselves.
//  3. Reap reaps the orphans of a killed process group, if the kernel makes them children of
//     this process.
//
// The package looks only at processes of this user, and never at this process. A
// process that was started with an empty environment is not found. Each search reads
// /proc once. Without /proc, as on macOS, it finds nothing.
//
// Open proctree_linux.go first.
package proctree

// Mark identifies marked processes by a variable of their environment.
type Mark struct {
	// Variable is the variable's name.
	Variable string
	// Is reports whether a value of the variable marks a process. It must not be nil.
	Is func(value string) bool
}
