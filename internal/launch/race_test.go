//go:build race

package launch

// An action of a second takes ten with the race detector on both sides.
const (
	gigabyte = "100000000"
	million  = "200000"
)
