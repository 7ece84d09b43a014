// Package report writes what a run has measured: everything as JSON, and the
// rows as tables of Markdown with the claims before them.
//
// Open report.go first.
package report
