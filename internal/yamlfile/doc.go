// Package yamlfile is the one reader of YAML and JSON in the repository: of
// service files, of configurations of plugins, and of anything else that an
// operator writes.
//
//  1. [Read] reads a regular file, up to a bound.
//  2. [Parse] returns the root node of its one YAML document.
//  3. [Decode] fills a Go value from a node. It is strict, and reports all
//     errors at once, each an [Error] with path, line and column.
//  4. [Flow] writes a node that was changed, or that is a part of a document.
//
// The package resolves no references and no variables. Open decode.go first.
package yamlfile
