// Package servingtest has helpers for the tests of package serving and of the packages
// below it: a [Probe], which makes the values of a deployment's replicas and records the
// calls of their hooks, and a [Log], which keeps the lines of a logger. [Receive] waits for
// an event, [Gather] reads metrics.
//
// The package does not import package serving, so that in-package tests can use it. Open
// probe.go first.
package servingtest

import (
	"context"
	"fmt"
	"sync"
)

// Hook is the behaviour of a hook for the n-th value of a Probe, counted from 1.
type Hook = func(ctx context.Context, n int) error

// Probe makes values of a deployment and records the calls of their hooks. The zero Probe
// has hooks that do nothing. Its methods are safe for concurrent use.
type Probe struct {
	// The behaviour of the hooks; nil does nothing. Once hooks may be called, change it
	// by Set.
	Construct, Reconfigure, Check, Stop Hook

	mu    sync.Mutex
	made  int
	notes []string
}

// Instance is the n-th value of a Probe.
type Instance struct {
	N     int
	probe *Probe
}

// New makes the next value, notes "make N", and returns the error of Construct.
func (p *Probe) New(ctx context.Context) (*Instance, error) {
	p.mu.Lock()
	p.made++
	n := p.made
	p.mu.Unlock()
	p.Note("make %d", n)
	return &Instance{N: n, probe: p}, p.call(ctx, &p.Construct, n)
}

// call calls a hook of the probe.
func (p *Probe) call(ctx context.Context, which *Hook, n int) error {
	p.mu.Lock()
	hook := *which
	p.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(ctx, n)
}

// Set changes a hook, which is a field of p.
func (p *Probe) Set(which *Hook, hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*which = hook
}

// Note adds a note.
func (p *Probe) Note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// Made returns the number of values that New has made.
func (p *Probe) Made() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made
}

// Take returns the notes since the last Take, oldest first.
func (p *Probe) Take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	notes := p.notes
	p.notes = nil
	return notes
}

// Reconfigure notes "config N CONFIG" and returns the error of the hook.
func (i *Instance) Reconfigure(ctx context.Context, config string) error {
	i.probe.Note("config %d %s", i.N, config)
	return i.probe.call(ctx, &i.probe.Reconfigure, i.N)
}

// CheckHealth returns the error of the hook Check.
func (i *Instance) CheckHealth(ctx context.Context) error {
	return i.probe.call(ctx, &i.probe.Check, i.N)
}

// Stop notes "stop N" and returns the error of the hook.
func (i *Instance) Stop(ctx context.Context) error {
	i.probe.Note("stop %d", i.N)
	return i.probe.call(ctx, &i.probe.Stop, i.N)
}
