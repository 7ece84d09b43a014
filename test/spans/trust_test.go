package spans

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/serving"
	"github.com/servetrace/servetrace/tracing"
)

// environment gives providers with the settings of these variables, NAME=value.
func environment(variables ...string) func(testing.TB, *recorder) *tracing.Provider {
	return func(t testing.TB, spans *recorder) *tracing.Provider {
		t.Helper()
		cfg, err := tracing.ConfigFromEnv(func(name string) string {
			i := slices.IndexFunc(variables, func(v string) bool { return strings.HasPrefix(v, name+"=") })
			if i < 0 {
				return ""
			}
			return variables[i][len(name)+1:]
		})
		if err != nil {
			t.Fatal(err)
		}
		return providerOf(t, spans, func(c *tracing.Config) { *c = cfg; c.JobID = jobID })
	}
}

// trustRow is a caller's flag under a setting.
type trustRow struct {
	trust, ratio string
	sent         string
	sampled      bool
}

var trustRows = []trustRow{
	{"true", "0", sampledParent, true},
	{"true", "1", unsampledParent, false},
	{"false", "0", sampledParent, false},
	{"false", "1", unsampledParent, true},
}

// row returns the expected result: the trace is always the caller's.
func (tt trustRow) row() w3cRow {
	flags := map[bool]string{true: "01", false: "00"}[tt.sampled]
	return w3cRow{
		sent:   lines{"traceparent: " + tt.sent, "tracestate: foo=1"},
		parent: tt.sent[:len(tt.sent)-2] + flags, state: "foo=1",
	}
}

// TestTrustInbound: the sampled flag of a caller is believed, or it is not, and
// the trace is the caller's all the same.
func TestTrustInbound(t *testing.T) {
	for _, tt := range trustRows {
		t.Run("trust "+tt.trust+", ratio "+tt.ratio, func(t *testing.T) {
			overBoth(t, func(t *testing.T, c *http.Client) {
				var r *rig
				r = serveWith(t, environment("SERVE_TRACING_TRUST_INBOUND="+tt.trust, "SERVE_TRACING_SAMPLING_RATIO="+tt.ratio),
					serving.Config{}, serving.NewApp("a", serving.NewDeployment("D", goesOut(&r))))
				row := tt.row()
				checkPassed(t, row, r.get(c, "r", "/", "traceparent", tt.sent, "tracestate", row.state).Body)
				if !tt.sampled {
					r.checkNoSpans()
					return
				}
				r.checkHTTP(row, "r")
			})
		})
	}
}
