//go:build !race

package launch

const (
	gigabyte = "1000000000"
	million  = "1000000"
)
