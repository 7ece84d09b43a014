package servetrace

import (
	"context"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/serving"
)

// startAdmin starts the listener for operators, if there is to be one. It is
// the first thing that runs and the last that ends, so that a start that takes
// long and a stop can be watched.
func (s *service) startAdmin(ctx context.Context) error {
	if !s.cfg.Admin.Enabled() {
		return nil
	}
	server, err := admin.NewServer(s.cfg.Admin, s.host.Stats, s.log)
	if err != nil { // Validate has seen it
		return err
	}
	if s.logQueue != nil {
		if err := server.ShowLog(s.logQueue.lost); err != nil {
			return err // cannot happen: it is called once
		}
	}
	s.closers = append(s.closers, server.Shutdown)
	s.admin = server
	return server.Start(ctx)
}

// show has the listener, if there is one, show the server's metrics and
// deployments too.
func (s *service) show(server *serving.Server) error {
	if s.admin == nil {
		return nil
	}
	s.admin.ShowDeployments(func() []admin.Deployment {
		list := server.Status()
		shown := make([]admin.Deployment, len(list))
		for i, d := range list {
			shown[i] = deploymentShown(d)
		}
		return shown
	})
	return s.admin.Register(server.Collector())
}

func deploymentShown(d serving.DeploymentStatus) admin.Deployment {
	shown := admin.Deployment{
		App: d.App, Name: d.Name, State: d.State.String(), Error: d.Error,
		NumReplicas: d.NumReplicas, MaxOngoingRequests: d.MaxOngoingRequests, MaxQueuedRequests: d.MaxQueuedRequests,
		Queued:   d.Queued,
		Replicas: make([]admin.Replica, len(d.Replicas)),
	}
	for i, r := range d.Replicas {
		shown.Replicas[i] = admin.Replica{
			ID: r.ID, State: r.State.String(), Since: r.Since.UTC(), Ongoing: r.Ongoing, Models: r.Models,
		}
	}
	return shown
}
