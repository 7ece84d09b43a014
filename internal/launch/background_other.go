//go:build unix && !linux

package launch

// inBackground calls start. Only Linux knows processes that nobody waits for.
func inBackground(start func() error) error { return start() }
