package plugintest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"

	"github.com/servetrace/servetrace/internal/launch"
)

// checkLaunch goes the way of a servetrace host, go-plugin's own client
// included, from the start to the end.
func checkLaunch(ctx context.Context, t *trial) error {
	path, err := t.target.executable()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = null.Close() }() // nothing was written
	start, cancel := context.WithTimeout(ctx, t.patience)
	defer cancel()
	p, err := launch.Start(start, launch.Command{
		Name: "plugintest", Path: path, AllowWritable: true, // whose it is does not matter to a test
		Environ: slices.Concat(baseEnviron(false), t.target.env, t.startEnviron()),
		Stdout:  null, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = t.serveLaunched(ctx, p)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.prompt())
	defer cancel()
	if stopped := p.Stop(stop); err == nil {
		err = stopped
	}
	if exit := p.Exit(); err == nil && exit != "exit status 0" {
		err = fmt.Errorf("it ended with %s; want exit status 0", exit)
	}
	return err
}

// serveLaunched configures a launched plugin, sends it batches and shuts it
// down.
func (t *trial) serveLaunched(ctx context.Context, p *launch.Process) error {
	s := &session{settings: t.settings, watch: &t.watch, foreign: true}
	s.use(p.Conn())
	if !t.about.plain {
		if err := s.configureWell(ctx, t.about.response.GetEnvPatterns()); err != nil {
			return err
		}
	}
	const batches = 3
	for range batches {
		if err := s.mustExport(ctx, t.numbers.batch(10)); err != nil {
			return err
		}
	}
	if t.about.plain {
		return nil
	}
	return s.shutsDown(ctx)
}
