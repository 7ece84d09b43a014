package plugintest

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/servetrace/servetrace/internal/wire"
)

// handshake has fields of the first line that a plugin prints. Its form is go-plugin's:
// CORE|APP|NETWORK|ADDRESS|PROTOCOL|CERTIFICATE|MULTIPLEX.
type handshake struct{ core, app, address, certificate string }

// handshakeForm matches a handshake for gRPC on a Unix socket. The last two fields are
// optional.
var handshakeForm = regexp.MustCompile(`^([0-9]+)\|([0-9]+)\|unix\|(/[^|]*)\|grpc(?:\|([^|]*)(?:\|[^|]*)?)?$`)

// parseHandshake parses a line of output. ok is false if the line is no handshake.
func parseHandshake(line string) (h handshake, ok bool) {
	fields := handshakeForm.FindStringSubmatch(line)
	if fields == nil {
		return h, false
	}
	return handshake{core: fields[1], app: fields[2], address: fields[3], certificate: fields[4]}, true
}

// checkVersions returns an error unless the handshake has the versions of go-plugin's
// core protocol and of the contract that hosts support.
func (h handshake) checkVersions() error {
	if h.core != strconv.Itoa(wire.CoreProtocolVersion) || h.app != strconv.Itoa(wire.ProtocolVersion) {
		return fmt.Errorf("it names core protocol %s and version %s; want %d and %d", h.core, h.app, wire.CoreProtocolVersion, wire.ProtocolVersion)
	}
	return nil
}
