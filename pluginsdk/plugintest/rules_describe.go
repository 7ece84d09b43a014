package plugintest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	pluginv1 "github.com/servetrace/servetrace/internal/gen/servetrace/plugin/v1"
	"github.com/servetrace/servetrace/internal/wire"
)

// about is what the plugin says of itself.
type about struct {
	response *pluginv1.DescribeResponse // nil for a plain receiver
	plain    bool
}

// maxBytes is the size of the largest batch that a host sends.
func (a about) maxBytes() int {
	if n := a.response.GetLimits().GetMaxBatchBytes(); n > 0 {
		return int(min(n, wire.MaxMessageBytes))
	}
	return wire.DefaultMaxBatchBytes
}

// maxSpans is the most spans that a host sends at once.
func (a about) maxSpans() int {
	const most = 1 << 16 // SERVE_TRACING_BATCH_SPANS goes no further
	if n := a.response.GetLimits().GetMaxBatchSpans(); n > 0 {
		return int(min(n, most))
	}
	return most
}

// concurrency is how many calls the plugin is given at once: what it declares,
// or 64 where it declares nothing. More than that no host makes.
func (a about) concurrency() int {
	const most = 64
	if n := a.response.GetLimits().GetMaxConcurrency(); n > 0 {
		return int(min(n, most))
	}
	return most
}

// describeRules are about Describe.
func describeRules() []rule {
	return []rule{
		{
			id: "describe.answered", title: "Describe is answered before Configure, or with UNIMPLEMENTED by a plain OTLP receiver",
			after: connected, check: checkDescribe,
		},
		{
			id: "describe.repeatable", title: "Describe gives the same answer each time, also at once and after Configure",
			needs: lifecycle, after: described, check: checkRepeatable,
		},
		{
			id: "describe.name", title: "The name is lower-case letters, digits and dashes; version, SDK and description are lines of text",
			needs: lifecycle, after: described, check: checkNames,
		},
		{
			id: "describe.kind", title: "The kind is KIND_EXPORTER",
			needs: lifecycle, after: described, check: func(_ context.Context, t *trial) error {
				if got := t.about.response.GetKind(); got != pluginv1.Kind_KIND_EXPORTER {
					return fmt.Errorf("kind is %v, want KIND_EXPORTER: this version of the contract knows no other", got)
				}
				return nil
			},
		},
		{
			id: "describe.variables", title: "Variables are declared by name, or by a prefix of three characters or more that ends in an underscore, and a star",
			needs: lifecycle, after: described, check: checkPatterns,
		},
		{
			id: "describe.limits", title: "Limits are zero, or what a host can keep",
			needs: lifecycle, after: described, check: checkLimits,
		},
		{
			id: "describe.offline", title: "Start and Describe do not touch the network",
			needs: process | lifecycle, after: described, check: checkOffline,
		},
	}
}

func checkDescribe(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	call, cancel := s.within(ctx)
	defer cancel()
	response, err := s.lifecycle.Describe(call, &pluginv1.DescribeRequest{HostVersion: "plugintest"})
	if wire.Unimplemented(err) {
		t.about.plain = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("call Describe: %w", s.callError(call, err))
	}
	t.about.response = response
	return nil
}

func checkRepeatable(ctx context.Context, t *trial) error {
	s, err := t.launch(ctx, how{})
	if err != nil {
		return err
	}
	same := func(when string) error {
		got, err := s.describe(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		if !proto.Equal(got, t.about.response) {
			return fmt.Errorf("%s: Describe answers\n%v\nwhere another process of the plugin answered\n%v", when, got, t.about.response)
		}
		return nil
	}
	const calls = 8
	if err := atOnce(calls, func(int) error { return same("several at once") }); err != nil {
		return err
	}
	if _, err := s.configure(ctx, s.request(t.about.response.GetEnvPatterns())); err != nil {
		return skipf("Configure: %v", err)
	}
	return same("after Configure")
}

// nameForm is what a plugin may be called.
var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// lineForm is one line of text, or nothing.
var lineForm = regexp.MustCompile(`^[^\x00-\x1f\x7f]*$`)

func checkNames(_ context.Context, t *trial) error {
	a := t.about.response
	var errs []error
	if !nameForm.MatchString(a.GetName()) {
		errs = append(errs, fmt.Errorf("name is %q; want lower-case letters, digits and dashes, beginning with a letter", a.GetName()))
	}
	for _, field := range []struct{ name, value string }{
		{"version", a.GetVersion()},
		{"sdk.name", a.GetSdk().GetName()},
		{"sdk.version", a.GetSdk().GetVersion()},
		{"sdk.language", a.GetSdk().GetLanguage()},
		{"description", a.GetDescription()},
	} {
		if !lineForm.MatchString(field.value) {
			errs = append(errs, fmt.Errorf("%s is %q; want one line without control characters: it is logged", field.name, clip(field.value)))
		}
	}
	if a.GetVersion() == "" {
		errs = append(errs, errors.New("version is empty; want the plugin's own, in any form: operators ask which one runs"))
	}
	return errors.Join(errs...)
}

func checkPatterns(_ context.Context, t *trial) error {
	var errs []error
	patterns := t.about.response.GetEnvPatterns()
	for i, pattern := range patterns {
		if !wire.ValidEnvPattern(pattern) {
			errs = append(errs, fmt.Errorf("pattern %q: a host refuses the plugin for it", pattern))
		}
		if slices.Contains(patterns[:i], pattern) {
			errs = append(errs, fmt.Errorf("pattern %q is there twice", pattern))
		}
	}
	return errors.Join(errs...)
}

func checkLimits(_ context.Context, t *trial) error {
	const fewestBytes = 4 << 10
	limits := t.about.response.GetLimits()
	var errs []error
	if n := limits.GetMaxBatchBytes(); n > 0 && n < fewestBytes {
		errs = append(errs, fmt.Errorf("max_batch_bytes is %d; want 0 (the host's default) or %d and more, or batches are cut to single spans", n, fewestBytes))
	}
	for _, limit := range []struct {
		name  string
		value uint32
	}{
		{"max_batch_spans", limits.GetMaxBatchSpans()},
		{"max_batch_bytes", limits.GetMaxBatchBytes()},
		{"max_concurrency", limits.GetMaxConcurrency()},
	} {
		if limit.value > math.MaxInt32 {
			errs = append(errs, fmt.Errorf("%s is %d, a negative number as it seems; want 0 (the host's default) to %d", limit.name, limit.value, math.MaxInt32))
		}
	}
	return errors.Join(errs...)
}

func checkOffline(ctx context.Context, t *trial) error {
	s, err := t.spawn(how{offline: true})
	if err != nil {
		if noNamespaces(err) {
			return skipf("this machine gives a process no network of its own: %v", err)
		}
		return err
	}
	if err := s.awaitHandshake(ctx); err != nil {
		return fmt.Errorf("without a network: %w", err)
	}
	if err := s.connect(); err != nil {
		return err
	}
	if _, err := s.describe(ctx); err != nil {
		return fmt.Errorf("without a network: %w", err)
	}
	attempts, err := networkUse(s.plugin.pid())
	if err != nil {
		return skipf("what it sends cannot be counted: %v", err)
	}
	if attempts > 0 {
		return fmt.Errorf("it tried to send %d packets before Configure; connect when you are configured, or later", attempts)
	}
	return nil
}
