package wire

import (
	"regexp"
	"strings"
)

// envPattern matches the name of a variable, and a pattern of a prefix and a star. The prefix
// has at least three characters and ends in an underscore.
var envPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][A-Za-z0-9_]+_\*)$`)

// ValidEnvPattern reports whether a plugin may declare the pattern: the name of a variable, or a
// prefix such as "DD_*". A short prefix is not allowed, because it would match too many
// variables.
func ValidEnvPattern(pattern string) bool { return envPattern.MatchString(pattern) }

// baseVariables are the variables of the host that every plugin gets. Programs need
// them to run, to use a proxy and to trust certificates, and they are unlikely to hold
// secrets.
var baseVariables = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
}

// BaseVariable reports whether every plugin gets the variable, even if it does not declare
// it.
func BaseVariable(name string) bool { return DeclaredBy(baseVariables, name) != "" }

// HandshakeVariable reports whether the variable belongs to the handshake between a host and its
// plugin. A host must not pass such a variable on to its plugins: the host may itself be a
// plugin of another host, which has set the variable.
func HandshakeVariable(name string) bool { return DeclaredBy(handshakeVariables, name) != "" }

// handshakeVariables lists the variables that a host sets for the handshake. Some are
// go-plugin's, and some are defined by this project.
var handshakeVariables = []string{
	CookieKey, EnvStdoutFD,
	EnvProtocolVersions, EnvSocketDir, EnvClientCert, EnvMultiplex,
	"PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_UNIX_SOCKET_GROUP",
}

// DeclaredBy returns the first pattern that matches the variable, or "" if none matches.
func DeclaredBy(patterns []string, name string) string {
	for _, pattern := range patterns {
		if prefix, family := strings.CutSuffix(pattern, "*"); pattern == name || family && strings.HasPrefix(name, prefix) {
			return pattern
		}
	}
	return ""
}
