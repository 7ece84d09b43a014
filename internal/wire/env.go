package wire

import (
	"regexp"
	"slices"
	"strings"
)

// envPattern is a variable's name, or a prefix of three characters or more
// that ends in an underscore, and a star.
var envPattern = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*|[A-Za-z_][A-Za-z0-9_]+_\*)$`)

// ValidEnvPattern tells whether a plugin may declare the pattern: one that would
// name more than a family of variables is not allowed.
func ValidEnvPattern(pattern string) bool { return envPattern.MatchString(pattern) }

// baseVariables are what every plugin gets from the host's environment: what a
// program needs to run, to find its way through a proxy and to trust
// certificates, and nothing that is likely to be a secret.
var baseVariables = []string{
	"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_*",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY",
	"http_proxy", "https_proxy", "no_proxy", "all_proxy",
	"SSL_CERT_FILE", "SSL_CERT_DIR",
}

// BaseVariable tells whether every plugin gets the variable, declared or not.
func BaseVariable(name string) bool {
	_, ok := DeclaredBy(baseVariables, name)
	return ok
}

// HandshakeVariable tells whether a variable belongs to the handshake between a
// host and the plugin that it starts: such a one is never handed on, for a host
// may itself run under another that has set it.
func HandshakeVariable(name string) bool {
	_, ok := DeclaredBy(handshakeVariables, name)
	return ok
}

// handshakeVariables are go-plugin's and ours.
var handshakeVariables = []string{
	CookieKey, EnvStdoutFD,
	EnvProtocolVersions, EnvSocketDir, EnvClientCert, EnvMultiplex,
	"PLUGIN_MIN_PORT", "PLUGIN_MAX_PORT", "PLUGIN_UNIX_SOCKET_GROUP",
}

// DeclaredBy gives the first pattern that names a variable, and whether there
// is one.
func DeclaredBy(patterns []string, name string) (pattern string, ok bool) {
	i := slices.IndexFunc(patterns, func(pattern string) bool {
		prefix, family := strings.CutSuffix(pattern, "*")
		return pattern == name || family && strings.HasPrefix(name, prefix)
	})
	if i < 0 {
		return "", false
	}
	return patterns[i], true
}
