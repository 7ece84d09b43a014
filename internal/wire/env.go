package wire

import "regexp"

// envPattern is a variable's name, or a prefix of three characters or more
// that ends in an underscore, and a star.
var envPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][A-Za-z0-9_]+_\*)$`)

// ValidEnvPattern tells whether a plugin may declare the pattern: one that would
// name more than a family of variables is not allowed.
func ValidEnvPattern(pattern string) bool { return envPattern.MatchString(pattern) }
