// Package servicefile reads the service file: YAML in the shape of Anyscale's service
// files, with the settings of one process.
//
// The environment overrides the file. Most keys have an environment variable. If the environment
// does not set this variable, the value in the file becomes its value. So the code that reads
// the environment reads the file, too, and a setting means the same in both places. The table in
// keys.go maps keys to variables. docs/reference/service-file.md is made from this table.
//
// The life of a file:
//
//  1. Read returns the content of a regular file.
//  2. Parse returns a File with the valid values, and collects all errors, each with a line
//     and a column. An unknown key, a repeated key, a value with a wrong type, an alias and a
//     merge are errors.
//  3. File.Try passes the values one by one to the code that reads the environment. So an
//     invalid value is an error at its place in the file.
//  4. File.Getenv returns variables from the environment, or else from the file. File.Place
//     adds the place in the file to errors that concern several values.
//
// The package does not know the meaning of a variable. It starts nothing and looks at no
// plugin: the root package does (servicefile.go there). Open keys.go first.
package servicefile
