package router

import (
	"context"
	"time"
)

// Constructor makes one value for each replica of a deployment, before the replica takes
// calls.
type Constructor struct {
	Key  any // key for LocalValue, compared with ==
	Make func(ctx context.Context) (Value, error)
}

// Value is the value that a constructor has made for a replica. Each of its functions is nil
// if the value's type does not have the method.
type Value struct {
	Local       any                                            // the value itself
	Reconfigure func(ctx context.Context, config string) error // config is JSON
	CheckHealth func(ctx context.Context) error
	Stop        func(ctx context.Context) error
}

// Settings are the settings of a deployment that may change while it runs.
type Settings struct {
	Replicas, MaxOngoing, MaxQueued int
	Config                          string // the user config as JSON; empty for none
	HealthPeriod, HealthTimeout     time.Duration
	WaitLoop, StopTimeout           time.Duration
}

// change returns w with each setting of after that differs from the setting of before. All
// other settings keep the values of w.
func (w Settings) change(before, after Settings) Settings {
	pick(&w.Replicas, before.Replicas, after.Replicas)
	pick(&w.MaxOngoing, before.MaxOngoing, after.MaxOngoing)
	pick(&w.MaxQueued, before.MaxQueued, after.MaxQueued)
	pick(&w.Config, before.Config, after.Config)
	pick(&w.HealthPeriod, before.HealthPeriod, after.HealthPeriod)
	pick(&w.HealthTimeout, before.HealthTimeout, after.HealthTimeout)
	pick(&w.WaitLoop, before.WaitLoop, after.WaitLoop)
	pick(&w.StopTimeout, before.StopTimeout, after.StopTimeout)
	return w
}

// pick sets *to to after, if after differs from before.
func pick[T comparable](to *T, before, after T) {
	if before != after {
		*to = after
	}
}
