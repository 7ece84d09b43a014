package plugintest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// configureRules are about Configure.
func configureRules() []rule {
	return []rule{
		{
			id: "configure.variables", title: "Every variable that it is tested with is declared by Describe",
			needs: lifecycle, after: described, check: checkDeclared,
		},
		{
			id: "configure.accepted", title: "Configure with the operator's variables and configuration is answered without a diagnostic of severity ERROR",
			needs: lifecycle, after: slices.Concat(described, []string{"describe.variables"}), check: func(ctx context.Context, t *trial) error {
				_, err := t.ready(ctx, how{})
				return err
			},
		},
		{
			id: "configure.bare", title: "Configure without anything is accepted, or refused by a diagnostic of severity ERROR",
			needs: lifecycle, after: described, check: checkBare,
		},
		{
			id: "configure.refused", title: "A configuration that it cannot work with is refused by a diagnostic of severity ERROR, and no batch is taken then",
			needs: lifecycle, after: described, check: checkBadDocument,
		},
	}
}

// startRules are about starting and configuring in other ways than usual.
func startRules() []rule {
	return []rule{
		{
			id: "configure.once", title: "A second Configure is refused, and changes nothing",
			needs: lifecycle, after: delivered, shares: true, check: checkConfiguredOnce,
		},
		{
			id: "configure.newer-host", title: "Fields of a newer host in Describe and Configure are ignored",
			needs: lifecycle, after: delivered, check: checkNewerHost,
		},
		{
			id: "start.path-only", title: "It starts and works with PATH as the only variable beside the handshake's",
			after: delivered, check: func(ctx context.Context, t *trial) error { return checkWorks(ctx, t, how{pathOnly: true}) },
		},
		{
			id: "start.unshared", title: "It works where the host does not share its standard output",
			needs: process, after: delivered, check: func(ctx context.Context, t *trial) error { return checkWorks(ctx, t, how{unshared: true}) },
		},
		{
			id: "start.side-by-side", title: "Two processes of it work side by side",
			after: delivered, check: checkSideBySide,
		},
	}
}

// configureLastRules are about what all rules saw of Configure.
func configureLastRules() []rule {
	return []rule{{
		id: "configure.diagnostics", title: "Each diagnostic has severity WARNING or ERROR, and a text",
		needs: lifecycle, after: described, last: true, check: func(_ context.Context, t *trial) error {
			t.watch.mu.Lock()
			defer t.watch.mu.Unlock()
			if t.watch.diagnostics == 0 {
				return skipf("it had no remark on any configuration of the suite")
			}
			return t.watch.diagnosticFaults.err()
		},
	}}
}

// atOnce calls f n times at once, returns when the last call has, and joins
// the errors.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { errs[i] = f(i) })
	}
	calls.Wait()
	return firstErrors(errs)
}

// firstErrors joins the first few errors and counts the rest.
func firstErrors(errs []error) error {
	const most = 3
	errs = slices.DeleteFunc(slices.Clone(errs), func(err error) bool { return err == nil })
	if len(errs) <= most {
		return errors.Join(errs...)
	}
	return errors.Join(append(errs[:most:most], fmt.Errorf("and %d more", len(errs)-most))...)
}

func checkDeclared(_ context.Context, t *trial) error {
	if len(t.env) == 0 {
		return skipWithout("WithEnv", "--env", "it is tested without variables")
	}
	patterns := t.about.response.GetEnvPatterns()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(t.env)) {
		if !declared(patterns, name) && !wire.BaseVariable(name) {
			errs = append(errs, fmt.Errorf("%s is not declared (Describe declares %q): a host does not send it; add it to the patterns", name, patterns))
		}
	}
	return errors.Join(errs...)
}

func checkBare(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	_, err = s.configure(ctx, &pluginv1.ConfigureRequest{}) //nolint:exhaustruct_v5 // all of it is missing, that is the point
	if err != nil {
		return fmt.Errorf("call Configure: %w; want an answer, with diagnostics that say what is missing", err)
	}
	_, err = s.describe(ctx)
	return err
}

// noDocument is neither YAML nor JSON.
var noDocument = []byte("{plugintest: [\x00\n\t}")

func checkBadDocument(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	request := s.request(t.about.response.GetEnvPatterns())
	request.Config = noDocument
	if t.badConfig != nil {
		request.Config = t.badConfig
	}
	reply, err := s.configure(ctx, request)
	switch {
	case err != nil:
		return fmt.Errorf("call Configure: %w; want an answer with a diagnostic: an operator reads it", err)
	case len(errorsOf(reply)) == 0 && t.badConfig != nil:
		return errors.New("the configuration of WithBadConfig (--bad-config) is accepted")
	case len(errorsOf(reply)) == 0:
		return skipWithout("WithBadConfig", "--bad-config", "it takes a document that is neither YAML nor JSON, so it seems to read none")
	}
	answer, err := s.export(ctx, t.numbers.batch(1))
	if err != nil {
		return fmt.Errorf("after a refused Configure: %w", err)
	}
	if answer.Delivered() {
		return errors.New("after a refused Configure a batch is answered OK")
	}
	return nil
}

func checkConfiguredOnce(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	reply, err := s.configure(ctx, s.request(t.about.response.GetEnvPatterns()))
	if err == nil && len(errorsOf(reply)) == 0 {
		return errors.New("a second Configure is accepted; answer FAILED_PRECONDITION: Configure comes once")
	}
	return s.lives(ctx, t, "a second Configure")
}

func checkNewerHost(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	describe := &pluginv1.DescribeRequest{HostVersion: "plugintest"}
	describe.ProtoReflect().SetUnknown(unknownField)
	call, cancel := s.within(ctx)
	defer cancel()
	if _, err := s.lifecycle.Describe(call, describe); err != nil {
		return fmt.Errorf("call Describe with field %d: %w", unknownNumber, s.callError(call, err))
	}
	request := s.request(t.about.response.GetEnvPatterns())
	request.ProtoReflect().SetUnknown(unknownField)
	request.GetContext().ProtoReflect().SetUnknown(unknownField)
	reply, err := s.configure(ctx, request)
	if err != nil {
		return fmt.Errorf("call Configure with field %d: %w", unknownNumber, err)
	}
	if faults := errorsOf(reply); len(faults) > 0 {
		return fmt.Errorf("call Configure with field %d: %s", unknownNumber, faults[0])
	}
	return s.mustExport(ctx, t.numbers.batch(1))
}

// unknownNumber is a field that no message has; unknownField is it, with a
// text.
const unknownNumber = 1999

var unknownField = protowire.AppendString(protowire.AppendTag(nil, unknownNumber, protowire.BytesType), "from the future")

// checkWorks starts a plugin in another way and sends it a batch.
func checkWorks(ctx context.Context, t *trial, h how) error {
	s, err := t.ready(ctx, h)
	if err != nil {
		return err
	}
	return s.mustExport(ctx, t.numbers.batch(1))
}

func checkSideBySide(ctx context.Context, t *trial) error {
	const processes = 2
	sessions := make([]*session, processes)
	if err := atOnce(processes, func(i int) (err error) {
		sessions[i], err = t.ready(ctx, how{})
		return err
	}); err != nil {
		return err
	}
	return atOnce(processes, func(i int) error { return sessions[i].mustExport(ctx, t.numbers.batch(3)) })
}
