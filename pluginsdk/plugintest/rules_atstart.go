package plugintest

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// atStartRules are about plugins that want their variables in the environment in
// which they start.
func atStartRules() []rule {
	return []rule{{
		id: "describe.env-at-start", title: "With env_at_start it declares variables, and describes itself alike with and without them in its start environment",
		needs: process | lifecycle, after: described, check: checkEnvAtStart,
	}}
}

// checkEnvAtStart starts the plugin with its variables, as a host does the second
// time, and compares Describe's answer with the answer of a start without them.
func checkEnvAtStart(ctx context.Context, t *trial) error {
	if !t.about.response.GetEnvAtStart() {
		return skipf("it does not ask for its variables at its start")
	}
	if len(t.about.response.GetEnvPatterns()) == 0 {
		return errors.New("env_at_start is true and env_patterns is empty: declare the variables, for a host starts the plugin only with those")
	}
	s, err := t.launch(ctx, how{})
	if err != nil {
		return fmt.Errorf("started with its variables: %w", err)
	}
	got, err := s.describe(ctx)
	if err != nil {
		return fmt.Errorf("started with its variables: %w", err)
	}
	if !proto.Equal(got, t.about.response) {
		return fmt.Errorf("started with its variables, Describe answers\n%v\nand without them\n%v\nwant one answer: a host grants variables by the first", got, t.about.response)
	}
	return nil
}
