package serving

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// deployments are the apps of a server and their deployments. They do not change after New.
type deployments struct {
	apps     []*App
	prefixes map[*App]string // the route prefixes, from the program or the operator
	// order has the deployments that this process runs or calls, in the order of the apps.
	// The ingress of each app comes first.
	order []*Deployment
}

// notReady returns the reason for which some deployment has no replica that takes requests,
// or "" if all have one.
func (a *deployments) notReady() (reason string) {
	for _, d := range a.order {
		reason = cmp.Or(reason, d.replicas().Unready())
	}
	return reason
}

func (a *deployments) start() {
	for _, d := range a.order {
		d.replicas().Start() // the method stop ends the replicas
	}
}

// stop stops all replicas at the same time, and waits for them until CloseGrace after ctx
// has ended. The replicas have no calls at this time, unless ctx has ended.
func (a *deployments) stop(ctx context.Context) error {
	for _, d := range a.order {
		d.replicas().Stop()
	}
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(inflight.CloseGrace, cancel) })
	defer stop()
	errs := make([]error, len(a.order))
	var waits sync.WaitGroup // all run at the same time, because one after another would take the sum of their times
	for i, d := range a.order {
		waits.Go(func() { errs[i] = d.replicas().Wait(ctx, late) })
	}
	waits.Wait()
	return errors.Join(errs...)
}

func (a *deployments) status() []DeploymentStatus {
	list := make([]DeploymentStatus, len(a.order))
	for i, d := range a.order {
		list[i] = d.replicas().Status()
	}
	return list
}
