//go:build unix && !linux

package launch

// inBackground calls start. Only Linux has a policy for background processes.
func inBackground(start func() error) error { return start() }
