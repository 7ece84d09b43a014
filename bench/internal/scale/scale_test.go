package scale

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// A case's suite, shape and row name it, and every claim is about a shape that
// there is.
func TestSetNames(t *testing.T) {
	set := Set()
	seen := map[string]bool{}
	shapes := map[string]bool{}
	for _, c := range set.Cases {
		name := c.Suite + "/" + c.Shape + "/" + c.Row
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name], shapes[c.Shape] = true, true
		if c.Suite != Name || c.Doc == "" || c.Run == nil {
			t.Errorf("%s: suite %q, doc %q", name, c.Suite, c.Doc)
		}
	}
	for _, c := range set.Claims {
		if !shapes[c.Shape] {
			t.Errorf("claim %q is about %q", c.Name, c.Shape)
		}
	}
}

func TestChildren(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "cat")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	if got := children(os.Getpid()); !slices.Contains(got, cmd.Process.Pid) {
		t.Errorf("children are %v, without %d", got, cmd.Process.Pid)
	}
	_ = stdin.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if got := children(os.Getpid()); slices.Contains(got, cmd.Process.Pid) {
		t.Errorf("children are %v, with %d that has ended", got, cmd.Process.Pid)
	}
}
