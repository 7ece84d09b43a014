// Package report writes what a run has measured: everything as JSON, the rows
// as tables of Markdown with the claims before them, and plots as SVG.
//
// Open report.go first.
package report
