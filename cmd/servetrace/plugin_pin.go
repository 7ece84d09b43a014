package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/servetrace/servetrace/host"
)

const pluginPinLong = `Print plugins as a list for SERVE_TRACING_EXPORTER_PLUGIN in which each has an
absolute path and a pin, the digest of its file:

  /opt/traces/exporter@sha256:...,NAME=/opt/traces/other@sha256:...

A service runs a pinned file only if it has that digest. Check a file before you pin it.

Each PATH is an executable, a bare name, or a folder of executables. Without a PATH,
the command pins the list of the service. A socket has no pin: the exit code is 1.`

const pluginPinExample = `  export SERVE_TRACING_EXPORTER_PLUGIN="$(servetrace plugin pin)"`

func newPluginPin(s settings) *cobra.Command {
	var plugins string
	cmd := &cobra.Command{
		Use:     "pin [PATH...]",
		Short:   "Print the list of plugins with the digests of their files",
		Long:    pluginPinLong,
		Example: pluginPinExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, paths []string) error {
			if len(paths) > 0 && plugins != "" {
				return usagef("give PATHs or --plugins, not both")
			}
			var items []pluginItem
			for _, path := range paths {
				item, err := itemOf(path)
				if err != nil {
					return err
				}
				item.name = "" // an item for a folder must have no name
				items = append(items, item)
			}
			return pin(cmd, s, cmp.Or(plugins, joinItems(items)))
		},
	}
	addPlugins(cmd, &plugins)
	return cmd
}

// unlocked returns the settings without lock-down, and without settings that name single
// plugins, because these plugins may not be in the list.
func unlocked(s settings) settings {
	return settings{s.with(map[string]string{
		host.EnvLockdown: "", host.EnvPluginConfig: "", host.EnvPluginEnv: "", host.EnvPluginMemoryLimit: "", host.EnvPluginMaxProcs: "",
	})}
}

// pin writes the list of plugins with pins. It ignores lock-down, which refuses a list without
// pins.
func pin(cmd *cobra.Command, s settings, plugins string) error {
	list, err := inspectList(cmd, unlocked(s), plugins, false)
	if err != nil {
		return err
	}
	var entries []string
	var errs []error
	for _, i := range list {
		switch entry := i.Pinned(); {
		case i.Attached:
			errs = append(errs, fmt.Errorf("plugin %q: %s is an address, which has no pin", i.Name, i.Where))
		case i.Args != nil:
			errs = append(errs, fmt.Errorf("plugin %q: %s has no pin; pin the interpreter: %s=%s@%s", i.Name, i.Where, host.EnvPython, escape.Replace(i.Path), i.Digest))
		case entry == "":
			errs = append(errs, fmt.Errorf("plugin %q: %w", i.Name, errors.Join(i.Err, errNoDigest)))
		default:
			entries = append(entries, entry)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if len(entries) == 0 {
		return errors.New("no plugins: " + s.off(plugins))
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(entries, ","))
	return err
}

var errNoDigest = errors.New("its file cannot be read")

// pinOf returns the entry of a plugin with the digest of its present file as the pin, so that
// a host accepts the entry under lock-down.
func pinOf(ctx context.Context, s settings, name, entry string) (string, error) {
	cfg, err := unlocked(s).list(entry)
	if err != nil {
		return "", err
	}
	i := host.Inspect(ctx, cfg, false)[0]
	if pinned := i.Pinned(); pinned != "" {
		return name + "=" + strings.TrimPrefix(pinned, name+"="), nil
	}
	return entry, nil // the host reports why the file cannot be read
}
