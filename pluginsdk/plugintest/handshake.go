package plugintest

import (
	"fmt"
	"strconv"
	"strings"
)

// handshake is a plugin's first line, in go-plugin's form:
// CORE|APP|NETWORK|ADDRESS|PROTOCOL|CERTIFICATE|MULTIPLEX, the last two of
// which may be missing.
type handshake struct {
	core, app                   int
	network, address, transport string
	certificate                 string
}

// parseHandshake reads a line; faults say what of it is no handshake.
func parseHandshake(line string) (h handshake, faults []string) {
	fields := strings.Split(line, "|")
	if len(fields) < 5 || len(fields) > 7 {
		return h, []string{fmt.Sprintf("it has %d fields separated by |", len(fields))}
	}
	var err error
	if h.core, err = strconv.Atoi(fields[0]); err != nil {
		faults = append(faults, fmt.Sprintf("core protocol version is %q", fields[0]))
	}
	if h.app, err = strconv.Atoi(fields[1]); err != nil {
		faults = append(faults, fmt.Sprintf("protocol version is %q", fields[1]))
	}
	h.network, h.address, h.transport = fields[2], fields[3], fields[4]
	if h.network != "unix" {
		faults = append(faults, fmt.Sprintf("network is %q, want unix", h.network))
	}
	if !strings.HasPrefix(h.address, "/") {
		faults = append(faults, fmt.Sprintf("address %q is no absolute path", h.address))
	}
	if h.transport != "grpc" {
		faults = append(faults, fmt.Sprintf("transport is %q, want grpc", h.transport))
	}
	if len(fields) > 5 {
		h.certificate = fields[5]
	}
	return h, faults
}
