package plugintest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/servetrace/servetrace/internal/wire"
)

// handshake is the first line of a plugin in go-plugin's form,
// CORE|APP|NETWORK|ADDRESS|PROTOCOL|CERTIFICATE|MULTIPLEX. The last two fields are
// optional.
type handshake struct {
	core, app            int
	address, certificate string
}

// parseHandshake parses a line. The error lists every field that is wrong.
func parseHandshake(line string) (h handshake, err error) {
	fields := strings.Split(line, "|")
	if len(fields) < 5 || len(fields) > 7 {
		return h, fmt.Errorf("it has %d fields separated by |", len(fields))
	}
	var faults []string
	expect := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	var notCore, notApp error
	h.core, notCore = strconv.Atoi(fields[0])
	h.app, notApp = strconv.Atoi(fields[1])
	h.address = fields[3]
	if len(fields) > 5 {
		h.certificate = fields[5]
	}
	expect(notCore == nil, "core protocol version is %q", fields[0])
	expect(notApp == nil, "protocol version is %q", fields[1])
	expect(fields[2] == "unix", "network is %q, want unix", fields[2])
	expect(strings.HasPrefix(h.address, "/"), "address %q is no absolute path", h.address)
	expect(fields[4] == "grpc", "transport is %q, want grpc", fields[4])
	if len(faults) > 0 {
		return h, errors.New(strings.Join(faults, ", "))
	}
	return h, nil
}

// checkVersions returns an error unless both protocol versions are the host's.
func (h handshake) checkVersions() error {
	if h.core != wire.CoreProtocolVersion || h.app != wire.ProtocolVersion {
		return fmt.Errorf("it names core protocol %d and version %d; want %d and %d", h.core, h.app, wire.CoreProtocolVersion, wire.ProtocolVersion)
	}
	return nil
}
