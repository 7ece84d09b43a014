package supervise

import "runtime/debug"

// version returns this module's version in the build.
func version() string {
	const module = "github.com/servetrace/servetrace"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if info.Main.Path == module {
		return info.Main.Version
	}
	for _, dep := range info.Deps {
		if dep.Path == module {
			return dep.Version
		}
	}
	return "unknown"
}
