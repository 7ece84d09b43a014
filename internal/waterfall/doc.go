// Package waterfall draws traces: a tree of spans, each with a bar for its time. The
// console plugin, `servetrace trace` and the status page draw with it.
//
// The life of a drawing:
//
//  1. Read returns the spans of a request, and ByTrace groups them.
//  2. LayOut arranges the spans of a trace: each after its parent, siblings by their
//     start. Recent remembers drawn traces, so that spans of a later batch find their
//     ancestors.
//  3. Analyse marks the critical path and the gaps. It needs the whole trace, so the
//     console plugin does not call it.
//  4. Draw returns the drawing for a terminal.
//
// The texts of a span are not trusted: each form escapes them. The package reads no file
// and keeps no trace except in a Recent.
//
// Open span.go first, then tree.go, analysis.go and draw.go. details.go draws the lines
// below a span, text.go escapes its texts, and terminal.go detects the terminal.
package waterfall
