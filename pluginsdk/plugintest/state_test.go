package plugintest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/pluginsdk/plugintest"
)

// database is a back end with answers that depend on its state, and not on the batch.
type database struct {
	mu    sync.Mutex
	fails error         // nil: it works
	open  chan struct{} // closed: it is not locked
}

func newDatabase() *database {
	open := make(chan struct{})
	close(open)
	return &database{open: open}
}

func (d *database) set(fails error, open chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails, d.open = fails, open
}

func (d *database) Export(ctx context.Context, _ *pluginsdk.Batch) error {
	d.mu.Lock()
	fails, open := d.fails, d.open
	d.mu.Unlock()
	select {
	case <-open:
		return fails
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *database) Shutdown(context.Context) error { return nil }

func (d *database) spec() pluginsdk.Spec {
	return pluginsdk.Spec{Name: "database", Version: "1.0.0", Description: "Writes to a database that a test breaks.", Exporter: func(context.Context, pluginsdk.Setup) (pluginsdk.Exporter, error) {
		return d, nil
	}}
}

// failing returns a function for WithState that makes the database refuse every batch.
func (d *database) failing(err error) func() (func() error, error) {
	return func() (func() error, error) {
		open := d.lock()
		d.set(err, open)
		return func() error { d.set(nil, open); return nil }, nil
	}
}

// locked locks the database, so that every batch waits.
func (d *database) locked() (restore func() error, err error) {
	before := d.lock()
	open := make(chan struct{})
	d.set(nil, open)
	return func() error { close(open); d.set(nil, before); return nil }, nil
}

func (d *database) lock() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// withState lists the rules that need WithState for this back end.
var withState = []string{"export.permanent", "export.retryable", "export.cancelled", "export.deadline", "end.drain"}

// Rules about failures apply to a back end that fails by its state. No other rule runs
// while the back end is broken.
func TestStatesProvokeAnswers(t *testing.T) {
	d := newDatabase()
	report, err := plugintest.Check(t.Context(), plugintest.InProcess(d.spec()), patient,
		plugintest.WithState(plugintest.Permanent, d.failing(pluginsdk.Permanent(errors.New("no such table")))),
		plugintest.WithState(plugintest.Retryable, d.failing(errors.New("disk full"))),
		plugintest.WithState(plugintest.Slow, d.locked),
		plugintest.WithState(plugintest.Stuck, d.locked),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if r.Status == plugintest.Fail || slices.Contains(withState, r.Rule) && r.Status != plugintest.Pass {
			t.Errorf("%s: %v: %s", r.Rule, r.Status, r.Detail)
		}
	}
}

// A wrong answer in a state, and a state that cannot be entered or left, fail the
// rule.
func TestStatesFindFaults(t *testing.T) {
	d := newDatabase()
	broken := errors.New("no database")
	for rule, c := range map[string]struct {
		option plugintest.Option
		want   string
	}{
		"export.permanent": {plugintest.WithState(plugintest.Permanent, d.failing(errors.New("disk full"))), "want a final code"},
		"export.retryable": {plugintest.WithState(plugintest.Retryable, func() (func() error, error) { return nil, broken }), `WithState "retryable": no database`},
		"end.drain": {plugintest.WithState(plugintest.Slow, func() (func() error, error) {
			restore, _ := d.locked()
			return func() error { return errors.Join(restore(), broken) }, nil
		}), "no database"},
	} {
		t.Run(rule, func(t *testing.T) {
			report, err := plugintest.Check(t.Context(), plugintest.InProcess(d.spec()), patient, plugintest.WithRules(rule), c.option)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(report.Results, func(r plugintest.Result) bool { return r.Rule == rule })
			if got := report.Results[i]; got.Status != plugintest.Fail || !strings.Contains(got.Detail, c.want) {
				t.Errorf("%v: %s, want FAIL with %q", got.Status, got.Detail, c.want)
			}
		})
	}
}

// A skip names the option that is missing, and for the command line its flag.
func TestSkipsNameWhatIsMissing(t *testing.T) {
	report, err := plugintest.Check(t.Context(), plugintest.InProcess(newDatabase().spec()), patient,
		plugintest.WithRules("export.permanent", "configure.variables"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := report.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	missing := map[string][2]string{}
	for _, r := range report.Results {
		if r.Status == plugintest.Skip {
			missing[r.Rule] = [2]string{r.Option, r.Flag}
		}
	}
	for rule, want := range map[string][2]string{
		"export.permanent": {"WithInput or WithState", ""}, "configure.variables": {"WithEnv", "--env"},
	} {
		if missing[rule] != want {
			t.Errorf("%s: %q is missing, want %q", rule, missing[rule], want)
		}
	}
	if strings.Contains(text.String(), "With") || !strings.Contains(text.String(), "it is tested without variables; see --env") {
		t.Errorf("the report for the command line:\n%s", &text)
	}
}
