// Package proctree finds descendants of a plugin outside its process group: processes
// that started their own session (setsid). It finds them by a mark in the environment
// that they were started with. The mark is a variable with the plugin's private folder,
// which only this plugin and its descendants have.
//
//  1. Kill kills all processes with a mark, after the plugin has ended.
//  2. Await waits until they have ended by themselves.
//  3. Reap reaps the orphans of a killed group, if this process is their reaper.
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
	// Is reports whether value is the mark's value. It must not be nil.
	Is func(value string) bool
}
