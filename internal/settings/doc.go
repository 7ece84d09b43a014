// Package settings has the code for reading settings that several packages share.
//
// A Reader reads typed variables and collects their faults. Unread finds environment
// variables that look like settings of the runtime although no code reads them. Most of
// them are misspelt.
//
// Unread gets an environment and the function that reads the settings. The variables
// that this function asks for are the known ones. The package reads no environment
// itself and logs nothing. Open unread.go first.
package settings
