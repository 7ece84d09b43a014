//go:build !race

package testplugin

// race: the race detector is in this binary.
const race = false
