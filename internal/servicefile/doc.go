// Package servicefile reads the service file: YAML in the shape of Anyscale's
// service files, with the settings of one process.
//
// The file is a layer under the environment. Each of its keys stands for an
// environment variable, and what it says is that variable's value where the
// environment has none: so there is one reader of values, the one of the
// environment, and no setting means one thing here and another there. Which key
// is which variable is one table, in keys.go; docs/reference/service-file.md is made of it.
//
// The way of a file:
//
//  1. Read reads the bytes of a regular file.
//  2. Parse makes a File of them. It walks the tree along the table: what is not
//     in it, what stands there twice, and what has the wrong type is a fault, and
//     so are aliases and merges. Faults have a line and a column, and all are
//     gathered.
//  3. File.Try has each value read by those who know what it means, one by one,
//     so that a wrong one is a fault at its place.
//  4. File.Getenv is the environment with the file under it; File.Place gives the
//     errors that come of values together their places.
//
// It does not know what a variable means, starts nothing and looks at no plugin:
// that is the root package's (servicefile.go there). Open keys.go first.
package servicefile
