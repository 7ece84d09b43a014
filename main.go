package servetrace

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/servetrace/servetrace/serving"
)

// Main is the main function of a program that serves apps:
//
//	func main() { servetrace.Main(app) }
//
// Main adds the flags --http ADDRESS, --grpc ADDRESS and --config FILE to the flags of package
// flag, and parses the command line, which must have no arguments. It reads the settings with
// LoadConfigFile, overrides them by the flags, and calls Run. If Run returns no error, Main
// returns. Otherwise it prints the error to standard error and ends the process. The exit
// status is 2 if the command line is wrong, and 1 after any other error.
//
// A program with flags of its own, or with options of Run, calls MainFunc.
func Main(apps ...*serving.App) {
	MainFunc(func(*Config) ([]*serving.App, error) { return apps, nil })
}

// MainFunc is Main for a program that makes its apps from its own flags or from settings. The
// program must define its flags with package flag before it calls MainFunc. MainFunc parses
// the command line and reads the settings, and then calls build once. build returns the apps
// and may change the settings. If it returns an error, the process ends with status 1.
func MainFunc(build func(cfg *Config) ([]*serving.App, error), opts ...Option) {
	var f commandLine
	flag.Func("http", "`address` to serve HTTP on (default "+serving.DefaultHTTPAddr+"); port 0 takes any free one", address(&f.http))
	flag.Func("grpc", "`address` to serve gRPC on (default "+serving.DefaultGRPCAddr+"), if an application has gRPC", address(&f.grpc))
	flag.StringVar(&f.config, "config", "", "service `file` (default: the file of "+EnvConfig+")")
	flag.Parse() // ends the process with status 2 if a flag is wrong
	name := filepath.Base(os.Args[0])
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: argument %q: want none\n", name, flag.Arg(0))
		os.Exit(2)
	}
	if err := f.run(build, opts); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// address returns a function for flag.Func, which checks that a flag's value is an address
// and stores it in *to.
func address(to *string) func(string) error {
	return func(value string) error {
		if value != "" {
			if _, _, err := net.SplitHostPort(value); err != nil {
				return errors.New("want HOST:PORT, such as 127.0.0.1:8080")
			}
		}
		*to = value
		return nil
	}
}

// commandLine holds the flags of Main. A field is empty if its flag was not given.
type commandLine struct{ http, grpc, config string }

// run reads the settings, and serves the apps that build returns until the program must
// stop.
func (f commandLine) run(build func(cfg *Config) ([]*serving.App, error), opts []Option) error {
	cfg, err := LoadConfigFile(f.config, os.Getenv)
	if err != nil {
		return err
	}
	if f.http != "" {
		cfg.Serving.HTTPAddr = f.http
	}
	if f.grpc != "" {
		cfg.Serving.GRPC.Addr = f.grpc
	}
	apps, err := build(&cfg)
	if err != nil {
		return err
	}
	return Run(context.Background(), cfg, apps, opts...)
}

// LoadConfig reads the settings from the process's environment and from the service
// file named by SERVE_CONFIG. See LoadConfigFile.
func LoadConfig() (Config, error) { return LoadConfigFile("", os.Getenv) }
