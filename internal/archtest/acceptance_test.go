package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/test/hazard"
)

const acceptancePage = "docs/internals/acceptance.md"

// upstreamTests are the tests of Ray Serve that the page maps one to one.
var upstreamTests = []string{
	"`test_disable_tracing_exporter`", "`test_validate_tracing_exporter_with_string`",
	"`test_check_tracing_exporter_import_path`", "`test_validate_tracing_exporter_with_args`",
	"`test_validate_tracing_exporter_processors_list`", "`test_validate_tracing_exporter_processors_full_output`",
	"`test_missing_dependencies`", "`test_default_tracing_exporter`", "`test_custom_tracing_exporter`", "`test_tracing_sampler`",
	"`test_tracing_e2e[basic]`", "`test_tracing_e2e[streaming]`", "`test_tracing_e2e[grpc]`",
	"`test_tracing_e2e_with_errors[http]`", "`test_tracing_e2e_with_errors[streaming]`", "`test_tracing_e2e_with_errors[grpc]`",
	"`test_set_trace_status_empty_stack`", "`test_set_trace_status_error`", "`test_set_trace_status_ok`",
	"`test_append_trace_stack_multithread`", "`test_batched_span_attached_to_first_request_trace`",
	"`test_grpc_streaming_tracing_attributes[ClientStreaming]`", "`test_grpc_streaming_tracing_attributes[BidiStreaming]`",
	"`test_serve_with_tracing.py::test_deployment_remote_calls_with_tracing`", "`test_cli.py`", "`test_standalone.py`", "PR #62165",
	"`grpc_util`",
}

var (
	acceptanceRow = regexp.MustCompile(`(?m)^- \*\*(.+?)\*\* (.+?): (.+)$`)
	// A test in a folder, perhaps with the beginning of a subtest's name: `folder/TestX/G1`.
	acceptanceTest = regexp.MustCompile("`([\\w./-]+)/(Test\\w+)(?:/([\\w ]+))?`")
	// The end of a row that names no test.
	noTest = regexp.MustCompile(`^(no counterpart: .|the tables above$)`)
)

// TestAcceptancePageIsWhole: every row of the tables of spans, every test of
// upstream's and every check is on the page, with tests that are there.
func TestAcceptancePageIsWhole(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(moduleRoot(t), acceptancePage))
	if err != nil {
		t.Fatal(err)
	}
	want := append([]string{"1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "2.1"}, upstreamTests...)
	for _, numbered := range []struct {
		letter string
		last   int
	}{{"H", 21}, {"G", 10}, {"C", 9}} {
		for n := 1; n <= numbered.last; n++ {
			want = append(want, fmt.Sprintf("%s%d", numbered.letter, n))
		}
	}
	var got []string
	for _, row := range acceptanceRow.FindAllStringSubmatch(string(page), -1) {
		name, tests := row[1], row[3]
		got = append(got, name)
		if !acceptanceTest.MatchString(tests) && !noTest.MatchString(tests) {
			t.Errorf("%s: row %s names no test, and does not say why: %q", acceptancePage, name, tests)
		}
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s: no row %s", acceptancePage, name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s: row %s is not known to this test", acceptancePage, name)
		}
	}
	for _, m := range acceptanceTest.FindAllStringSubmatch(string(page), -1) {
		checkNamed(t, hazard.Test{Name: m[2], Dir: m[1]}, m[3])
	}
}

// checkNamed checks that a test exists, and has a subtest that begins with sub unless sub
// is empty.
func checkNamed(t *testing.T, test hazard.Test, sub string) {
	t.Helper()
	body := findTest(t, test)
	if body == nil {
		t.Errorf("%s: %s is not to be found in %s", acceptancePage, test.Name, test.Dir)
		return
	}
	if sub != "" && !hasText(body, sub) {
		t.Errorf("%s: %s in %s has no subtest %s", acceptancePage, test.Name, test.Dir, sub)
	}
}

// hasText reports whether a string in body begins with text.
func hasText(body ast.Node, text string) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		literal, ok := n.(*ast.BasicLit)
		if ok && literal.Kind == token.STRING {
			found = found || strings.HasPrefix(strings.Trim(literal.Value, "`\""), text)
		}
		return true
	})
	return found
}
