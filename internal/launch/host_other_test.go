//go:build unix && !linux

package launch

// becomeHost is for Linux's tests.
func becomeHost() {}
