package datadogexporter

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// envReexec marks the process that was executed again, by its id: one that is
// inherited from another process says nothing.
const envReexec = "SERVETRACE_DATADOG_REEXEC"

// switches are what dd-trace-go must find in its environment so that it is an
// encoder and nothing more. It reads some of them before main.
func switches() []string {
	return []string{
		"DD_INSTRUMENTATION_TELEMETRY_ENABLED=false",           // before main
		"DD_EXPERIMENTAL_PROPAGATE_PROCESS_TAGS_ENABLED=false", // before main: the plugin's own process on every trace
		"DD_REMOTE_CONFIGURATION_ENABLED=false",
		"DD_TRACE_STARTUP_LOGS=false",             // 6 kB in one line, and a probe
		"DD_TRACE_INTERNAL_METRICS_ENABLED=false", // datagrams to port 8125
		"DD_TRACE_STATS_COMPUTATION_ENABLED=false",
		"DD_TRACE_GIT_METADATA_ENABLED=false", // the plugin's own commit
		"DD_TRACE_PARTIAL_FLUSH_ENABLED=false",
		"DD_TRACE_SEND_RETRIES=0",
		"DD_TRACE_AGENT_PROTOCOL_VERSION=1.0", // which it uses if the agent has it: see encoding.info
	}
}

// errReexec is why Reexec could not, for New to tell the operator.
var errReexec error

// Reexec executes the program again, once, in the same process, with the
// switches of dd-trace-go in its environment that must be there before main:
// its telemetry off, and its own process's tags. Call it first in the main
// function of a plugin that has this package's exporter.
//
// It returns in the second execution, and where the first has what is needed.
// Process id, open descriptors, and the death pact with the host stay; the
// kernel is asked for the image that runs, so one that the host runs from
// sealed memory is the same again. Variables of OpenTelemetry that would turn
// dd-trace-go off or elsewhere are left out; those that the operator means for
// the plugin come from the host later.
//
// Where the system refuses, the plugin works without, and [New] warns of what
// differs.
func Reexec() {
	if os.Getenv(envReexec) == strconv.Itoa(os.Getpid()) {
		_ = os.Unsetenv(envReexec) // children start anew
		return
	}
	self, err := image()
	if err == nil {
		err = syscall.Exec(self, os.Args, prepared(os.Environ(), os.Getpid())) //nolint:gosec // this very program
	}
	errReexec = fmt.Errorf("execute %q again: %w", self, err)
}

// prepared is the environment of the second execution.
func prepared(environ []string, pid int) []string {
	set := append(switches(), envReexec+"="+strconv.Itoa(pid))
	kept := slices.DeleteFunc(slices.Clone(environ), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return unwanted[name] || slices.ContainsFunc(set, func(s string) bool { return strings.HasPrefix(s, name+"=") })
	})
	return append(kept, set...)
}

// unwanted are variables of OpenTelemetry that dd-trace-go obeys although they
// are meant for the SDK in the host.
var unwanted = map[string]bool{
	"OTEL_TRACES_EXPORTER": true, "OTEL_TRACES_SAMPLER": true, "OTEL_TRACES_SAMPLER_ARG": true,
	"OTEL_SERVICE_NAME": true, "OTEL_RESOURCE_ATTRIBUTES": true,
}

// image is the path of the program that runs. On Linux it is the kernel's own
// link, which also leads to a file that has been replaced, or never had a name.
func image() (string, error) {
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// hiddenPrefixes are the variables that dd-trace-go reads for itself, several
// hundred: what the plugin has use for it reads from its Setup.
var hiddenPrefixes = []string{"DD_", "_DD_", "OTEL_", "AWS_LAMBDA_FUNCTION_NAME="}

// withEnvironment calls start with an environment in which dd-trace-go finds the
// switches, what is passed on, and no other variable that it knows. It reads
// them as it starts. They are put back; the few nanoseconds in between another
// goroutine that asks for one of them is told that it is not set.
func withEnvironment(passed string, start func() error) error {
	var hidden []string
	for _, entry := range os.Environ() {
		for _, prefix := range hiddenPrefixes {
			if strings.HasPrefix(entry, prefix) {
				hidden = append(hidden, entry)
			}
		}
	}
	shown := append(switches(), strings.Split(passed, "\n")...)
	defer setAll(hidden)
	defer unsetAll(shown)
	unsetAll(hidden)
	setAll(shown)
	return start()
}

func setAll(entries []string) {
	for _, entry := range entries {
		if name, value, ok := strings.Cut(entry, "="); ok {
			_ = os.Setenv(name, value) // it was in an environment before
		}
	}
}

func unsetAll(entries []string) {
	for _, entry := range entries {
		if name, _, ok := strings.Cut(entry, "="); ok {
			_ = os.Unsetenv(name)
		}
	}
}
