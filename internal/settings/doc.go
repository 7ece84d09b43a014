// Package settings finds variables of the environment that look like settings of
// the runtime and that nothing reads, mostly because they are misspelt.
//
// Unread is given an environment and the function that reads the settings; that
// function's questions are the variables that are known. The package reads no
// environment and logs nothing. Open unread.go first.
package settings
