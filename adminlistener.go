package servetrace

import (
	"github.com/servetrace/servetrace/admin"
	"github.com/servetrace/servetrace/serving"
)

// showServer makes the admin listener show the deployments of the server on its status page,
// and the metrics of the server.
func showServer(listener *admin.Server, server *serving.Server) error {
	listener.ShowDeployments(func() []admin.Deployment {
		list := server.Status()
		shown := make([]admin.Deployment, len(list))
		for i, d := range list {
			shown[i] = deploymentShown(d)
		}
		return shown
	})
	return listener.Register(server.Collector())
}

// deploymentShown converts the status of a deployment to the form of package admin.
func deploymentShown(d serving.DeploymentStatus) admin.Deployment {
	shown := admin.Deployment{
		App: d.App, Name: d.Name, State: d.State.String(), Error: d.Error,
		NumReplicas: d.NumReplicas, MaxOngoingRequests: d.MaxOngoingRequests, MaxQueuedRequests: d.MaxQueuedRequests,
		Queued: d.Queued, Target: d.Target,
		Replicas: make([]admin.Replica, len(d.Replicas)),
	}
	for i, r := range d.Replicas {
		shown.Replicas[i] = admin.Replica{
			ID: r.ID, State: r.State.String(), Since: r.Since.UTC(), Ongoing: r.Ongoing, Models: r.Models,
		}
	}
	return shown
}
