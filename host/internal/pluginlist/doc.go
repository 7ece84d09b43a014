// Package pluginlist reads the operator's settings of plugins: the list and its
// folders, pins, variables that plugins get, configurations, and the credentials that
// configurations refer to.
//
//  1. Settings.Validate checks the settings without opening a file.
//  2. Settings.Expand replaces the folders of the list by their plugins.
//  3. For each start of a plugin, Entry.Resolve returns its executable,
//     Settings.StartEnviron and Settings.Grant its variables, and
//     Settings.ReadConfiguration its configuration with the references resolved.
//
// The package starts no process and has no state. Open settings.go first, then list.go (an
// entry and its pin), folder.go, pluginconfig.go (configurations) and grant.go (variables).
// processors.go parses the lists of processors, and python.go has the entries for exporter
// functions in Python. pluginenv.go parses and checks the variables' settings, and
// lockdown.go checks the rules of lock-down. reference.go finds the references in a
// configuration, and secret.go finds their values.
package pluginlist
