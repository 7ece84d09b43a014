package pluginsdk

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/wire"
)

// hosted reports whether a host started the plugin: only a host sets go-plugin's cookie.
func hosted(env Env) bool { return env.lookup(wire.CookieKey) == wire.CookieValue }

// checkHost returns an error if the host's variables ask for something that no plugin of
// this SDK has. It logs a warning if the host supports only other protocol versions.
func checkHost(env Env, log *slog.Logger) error {
	if env.lookup(wire.EnvClientCert) != "" {
		return fmt.Errorf("host asks for AutoMTLS (%s), which a plugin on a private Unix socket does not speak: switch it off in the host", wire.EnvClientCert)
	}
	if env.Handshake == nil {
		return errors.New("no writer for the handshake: set Env.Handshake")
	}
	versions := env.lookup(wire.EnvProtocolVersions)
	own := fmt.Sprint(wire.ProtocolVersion)
	if versions != "" && !slices.Contains(strings.Split(versions, ","), own) {
		// The handshake then names the plugin's own version, as with go-plugin's server. So the
		// host can report both versions when it refuses the plugin.
		log.Warn("host and plugin have no protocol version in common: build the plugin with a matching SDK",
			"host", versions, "plugin", own)
	}
	return nil
}

// shake writes the handshake, one line in the form of go-plugin: core version, protocol
// version, network, address, protocol, and an empty certificate. It then calls
// env.shaken.
func shake(env Env, s *socket) error {
	line := fmt.Sprintf("%d|%d|unix|%s|grpc|", wire.CoreProtocolVersion, wire.ProtocolVersion, s.path)
	if env.lookup(wire.EnvMultiplex) != "" {
		// Only a host that sets this variable can read the seventh field. It reports whether
		// servers of go-plugin's broker share the socket. This SDK has no broker.
		line += "|false"
	}
	if _, err := io.WriteString(env.Handshake, line+"\n"); err != nil {
		return fmt.Errorf("write handshake: %w", err)
	}
	if env.shaken != nil {
		env.shaken()
	}
	return nil
}
