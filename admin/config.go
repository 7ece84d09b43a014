package admin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The variables that [ConfigFromEnv] reads. An empty value counts as unset.
const (
	EnvHost     = "SERVE_ADMIN_HOST"    // default 127.0.0.1
	EnvPort     = "SERVE_ADMIN_PORT"    // 0 means any free port; if it is unset, no listener starts
	EnvProfiles = "SERVE_ADMIN_PPROF"   // "true" or "false"; the default is "false"
	EnvCapture  = "SERVE_ADMIN_CAPTURE" // "true" or "false"; the default is "false"
	EnvTraces   = "SERVE_ADMIN_TRACES"  // "true" or "false"; the default is "true"
)

// Defaults of the address.
const (
	DefaultHost = "127.0.0.1"
	// DefaultPort is the port that `servetrace status` asks and the docs use. A service
	// has no default: if no port is set, no listener starts.
	DefaultPort = 8001
)

// Config holds the operator's settings of the admin listener. The zero value is valid:
// no listener starts.
type Config struct {
	// Addr is the host:port to listen on. An empty host means every address, and port 0 means
	// any free port. If the host is a name, requests may have this name in their Host header.
	// An empty Addr means that no listener starts.
	Addr string
	// Profiles enables the Go runtime's profiles. Default: false.
	Profiles bool
	// Capture allows clients to record the spans that a plugin gets. Default: false.
	Capture bool
	// NoTraces hides the last traces on the page. Default: false.
	NoTraces bool
}

// RecentBytes returns the argument of host.NewRecent for [Server.ShowTraces]: the bound on the
// bytes of all batches that are kept. It is 0 if the page shows no traces.
func (c Config) RecentBytes() int {
	if !c.Enabled() || c.NoTraces {
		return 0
	}
	return 2 << 20
}

// ConfigFromEnv reads the settings through getenv, which must behave like os.Getenv. If no port
// is set, Addr is empty. The error names every invalid variable with its value and the allowed
// values.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	var cfg Config
	var faults []error
	read := getenv
	getenv = func(name string) string { return strings.TrimSpace(read(name)) } // as the service file does
	boolean := func(name string, otherwise bool) bool {
		switch text := getenv(name); text {
		case "true", "false":
			return text == "true"
		case "":
		default:
			faults = append(faults, fmt.Errorf("%s=%q: want true or false", name, text))
		}
		return otherwise
	}
	cfg.Profiles, cfg.NoTraces = boolean(EnvProfiles, false), !boolean(EnvTraces, true)
	cfg.Capture = boolean(EnvCapture, false)
	if text := getenv(EnvPort); text != "" {
		host := getenv(EnvHost)
		if host == "" {
			host = DefaultHost
		}
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s=%q: want a whole number from 0 to 65535; unset it for no listener", EnvPort, text))
		}
		cfg.Addr = net.JoinHostPort(host, strconv.FormatUint(port, 10))
	}
	if host := getenv(EnvHost); !isHost(host) {
		faults = append(faults, fmt.Errorf("%s=%q: want an IP address or a host name, without a port", EnvHost, host))
		cfg.Addr = ""
	}
	return cfg, errors.Join(faults...)
}

// isHost reports whether text is empty, an IP address, or possibly a host name.
func isHost(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	return !strings.ContainsAny(text, ":/[]@ \t\r\n")
}

// Enabled reports whether the settings have an address, so that a listener starts.
func (c Config) Enabled() bool { return c.Addr != "" }

// Validate returns an error that joins all faults of the settings, each with the value and the
// allowed values. It returns nil if there is none.
func (c Config) Validate() error {
	if c.Addr == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(c.Addr)
	if err != nil {
		return fmt.Errorf("admin address %q: want host:port", c.Addr)
	}
	var faults []error
	if !isHost(host) {
		faults = append(faults, fmt.Errorf("admin address %q: want an IP address or a host name before the port", c.Addr))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		faults = append(faults, fmt.Errorf("admin address %q: want a port from 0 to 65535", c.Addr))
	}
	return errors.Join(faults...)
}
