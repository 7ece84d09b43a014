package serving

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"google.golang.org/grpc/credentials"

	"github.com/servetrace/servetrace/serving/internal/callclient"
	"github.com/servetrace/servetrace/serving/internal/callserver"
	"github.com/servetrace/servetrace/serving/internal/router"
)

// calls makes the calls by handle from this process to other processes, and takes calls
// from other processes. Its fields do not change after New.
type calls struct {
	cfg    CallConfig                       // with defaults in place of zeros
	places map[*Deployment]place            // for the deployments that this process does not run
	front  bool                             // this process runs the ingress of an app
	creds  credentials.TransportCredentials // nil without TLS
	pool   *callclient.Pool                 // connections to the other processes
	server *callserver.Server               // nil if no other process may call this process
	log    *slog.Logger
}

// newCalls returns the calls for the apps. It opens no connection. No app and no deployment
// may be nil.
func newCalls(cfg CallConfig, apps []*App, log *slog.Logger) (*calls, error) {
	places, err := cfg.places(apps, log)
	faults := []error{err}
	front := false
	for _, a := range apps {
		front = front || !places[a.ingress].absent
		for _, d := range a.deployments() {
			at := places[d]
			if at.absent || at.target == "" && cfg.Addr == "" {
				continue
			}
			if err := d.checkCrossing(); err != nil {
				faults = append(faults, fmt.Errorf("app %q: deployment %q is called from one process to another: %w", a.name, d.name, err))
			}
		}
	}
	creds, err := cfg.credentials(log)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}
	return &calls{
		cfg:    cfg,
		places: places,
		front:  front,
		creds:  creds,
		pool:   callclient.NewPool(callclient.Settings{MaxMessageBytes: cfg.MaxMessageBytes, Credentials: creds}),
		log:    log,
	}, nil
}

// remote returns the router for the deployment d, which other processes run.
func (c *calls) remote(s *router.Shared, d *Deployment, config router.Config) *router.Deployment {
	built := router.NewRemote(s, config)
	built.Replicas = callclient.New(callclient.Config{
		Pool:       c.pool,
		Deployment: built,
		Target:     c.places[d].target,
		Source:     c.places[d].source,
		Provider:   s.Tracer.Provider,
		Errors:     &d.errors,
		Log:        c.log,
		Settings:   config.Settings,
		Changed:    s.Notify,
	})
	return built
}

// serve builds the server for calls from other processes, if the settings have an address
// for it. The server calls failed if its listener fails.
func (c *calls) serve(s *router.Shared, all []*Deployment, failed func(error)) {
	if c.cfg.Addr == "" {
		return
	}
	cfg := callserver.Config{
		Shared:    s,
		Functions: map[callserver.Key]callserver.Function{},
		Failed:    failed,
		Settings:  callserver.Settings{MaxMessageBytes: c.cfg.MaxMessageBytes, MaxStreams: c.cfg.MaxStreams, Credentials: c.creds},
	}
	for _, d := range all {
		built := d.built.Load()
		if built.Remote {
			continue
		}
		cfg.Deployments = append(cfg.Deployments, built)
		for _, m := range d.methods {
			cfg.Functions[callserver.Key{App: built.App, Deployment: built.Name, Method: m.name}] = callserver.Function{
				Deployment: built,
				Codec:      d.codec.Name(),
				Streaming:  m.stream,
				Errors:     &d.errors,
				Serve:      m.serve,
			}
		}
	}
	c.server = callserver.New(cfg)
}

// start opens the listener for calls from other processes, if there is a server for them. It
// warns if the settings make no sense or are unsafe.
func (c *calls) start(ctx context.Context) error {
	if c.server == nil {
		if !c.front {
			c.log.Warn("the process runs no ingress, and no other process can call its deployments; set "+EnvCallAddr+" to a host:port",
				"deployments", strings.Join(c.cfg.Deployments, ","))
		}
		return nil
	}
	l, err := listen(ctx, "server for calls", c.cfg.Addr, EnvCallAddr, EnvCallAddr, "")
	if err != nil {
		return err
	}
	if at, is := l.Addr().(*net.TCPAddr); c.creds == nil && is && !at.IP.IsLoopback() {
		c.log.Warn("calls from other processes are neither encrypted nor authenticated; set "+EnvCallTLSCert+", "+EnvCallTLSKey+" and "+EnvCallTLSCA+
			", or let only processes of the app reach the port", "calls", l.Addr().String())
	}
	c.server.Start(l)
	return nil
}

// leave informs the processes that call this process that it stops soon.
func (c *calls) leave() {
	if c.server != nil {
		c.server.Leave()
	}
}

// stop closes the listener and its connections.
func (c *calls) stop(ctx context.Context) {
	if c.server != nil {
		c.server.Stop(ctx)
	}
}
