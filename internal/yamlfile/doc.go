// Package yamlfile reads YAML and JSON that an operator writes, such as service files and
// configurations of plugins. No other package of this repository does so.
//
//  1. [Read] reads a regular file, up to a bound.
//  2. [Parse] returns the root node of its one YAML document.
//  3. [Decode] fills a Go value from a node. It is strict, and reports all
//     errors at once, each an [Error] with path, line and column.
//  4. [Flow] writes a node as a document, for a node that was changed or is only a part of
//     the original document.
//
// The package does not replace references such as ${env:NAME} by values. Open decode.go first.
package yamlfile
