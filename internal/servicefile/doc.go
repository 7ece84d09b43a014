// Package servicefile reads the service file: YAML in the shape of Anyscale's service
// files, with the settings of one process.
//
// The file is a layer under the environment. Most keys have an environment variable, and
// the value in the file is the variable's value if the environment has none. So the
// readers of the environment read these values, too, and a setting means the same in both
// places. The table in keys.go maps keys to variables; docs/reference/service-file.md is
// made from it.
//
// The life of a file:
//
//  1. Read returns the content of a regular file.
//  2. Parse returns a File. It follows the table: an unknown key, a repeated key, a
//     value of another type, an alias and a merge are errors. Errors have a line and a
//     column, and all errors are collected.
//  3. File.Try passes each value to the readers of the environment, one by one, so that
//     an invalid value is an error at its place.
//  4. File.Getenv is the environment with the file under it. File.Place adds places to
//     the errors that arise from several values together.
//
// The package does not know the meaning of a variable. It starts nothing and looks at no
// plugin: the root package does (servicefile.go there). Open keys.go first.
package servicefile
