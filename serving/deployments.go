package serving

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"
)

// deployments are the deployments of a server's apps. They do not change after New.
type deployments struct {
	apps     []*App
	prefixes map[*App]string // the route prefixes in force
	order    []*replicaSet   // by the order of the apps, the ingress of each first
	sets     map[*Deployment]*replicaSet
}

func newDeployments(apps []*App, prefixes map[*App]string) *deployments {
	return &deployments{apps: apps, prefixes: prefixes, sets: map[*Deployment]*replicaSet{}}
}

func (a *deployments) add(d *Deployment, set *replicaSet) {
	a.sets[d], a.order = set, append(a.order, set)
}

// notReady returns why the server is not ready for requests of all deployments; empty if
// it is.
func (a *deployments) notReady() (reason string) {
	for _, set := range a.order {
		reason = cmp.Or(reason, set.reason())
	}
	return reason
}

// stop stops all replicas at the same time. They have no calls any more, unless ctx has
// ended.
func (a *deployments) stop(ctx context.Context) error {
	for _, set := range a.order {
		set.stop()
	}
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeGrace, cancel) })
	defer stop()
	errs := make([]error, len(a.order))
	var waits sync.WaitGroup // at the same time: a set that hangs must not use up the time of the others
	for i, set := range a.order {
		waits.Go(func() { errs[i] = set.wait(ctx, late) })
	}
	waits.Wait()
	return errors.Join(errs...)
}
