// Package settings has the code for reading settings that several packages share.
//
// A Reader reads typed variables and collects their faults. Unread finds environment
// variables that look like settings of the runtime although no code reads them. Most of
// them are misspelt.
//
// Unread gets an environment and a function that reads all settings. The variables that this
// function asks for are the known variables. The package itself reads no environment and logs
// nothing. Open reader.go first, then unread.go.
package settings
