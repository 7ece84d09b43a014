package serving

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/servetrace/servetrace/serving/internal/inflight"
)

// deployments are the deployments of a server's apps. They do not change after New.
type deployments struct {
	apps     []*App
	prefixes map[*App]string // the current route prefixes
	order    []*Deployment   // in the order of the apps; the ingress of each app comes first
}

// notReady returns the reason for which the server is not ready for requests of all
// deployments, or "".
func (a *deployments) notReady() (reason string) {
	for _, d := range a.order {
		reason = cmp.Or(reason, d.replicas().Unready())
	}
	return reason
}

func (a *deployments) start() {
	for _, d := range a.order {
		d.replicas().Start() // the replicas run until stop
	}
}

// stop stops all replicas at the same time. They have no calls, unless ctx has ended.
func (a *deployments) stop(ctx context.Context) error {
	for _, d := range a.order {
		d.replicas().Stop()
	}
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(inflight.CloseGrace, cancel) })
	defer stop()
	errs := make([]error, len(a.order))
	var waits sync.WaitGroup // all waits run at the same time, so that no deployment uses up the time of another
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
