package servetrace

import (
	"context"

	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/serving"
)

// startAdmin starts the admin listener, if it is enabled. The listener starts before
// all other parts and ends after them, so that operators can watch a long start or
// stop.
func (s *service) startAdmin(ctx context.Context) error {
	if !s.cfg.Admin.Enabled() {
		return nil
	}
	server, err := admin.NewServer(s.cfg.Admin, s.host.Stats, s.log)
	if err != nil { // cannot happen: Validate has checked it
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

// showServer adds the server's metrics and deployments to the admin listener, if there
// is one.
func (s *service) showServer(server *serving.Server) error {
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
