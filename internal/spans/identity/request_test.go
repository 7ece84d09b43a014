package identity_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/servetrace/servetrace/internal/spans/identity"
)

// hexOf matches n bytes in lower-case hexadecimal digits.
func hexOf(n int) *regexp.Regexp { return regexp.MustCompile(fmt.Sprintf("^[0-9a-f]{%d}$", 2*n)) }

// Actor and job id are suffixes of the task id, in Ray's lengths.
func TestIdentityFormats(t *testing.T) {
	const job = "0a1b2c3d"
	proxy, replica, other := identity.NewProxy(job), identity.NewReplica(job, "app1", "D"), identity.NewReplica(job, "app1", "D")
	for name, c := range map[string]*identity.Component{"proxy": proxy, "replica": replica} {
		actor, task := c.ActorID(), c.NewTask()
		if !hexOf(16).MatchString(actor) || !strings.HasSuffix(actor, job) {
			t.Errorf("%s: actor id %q is not 16 bytes that end in the job id", name, actor)
		}
		if !hexOf(24).MatchString(task) || !strings.HasSuffix(task, actor) {
			t.Errorf("%s: task id %q is not 24 bytes that end in the actor id", name, task)
		}
		if again := c.NewTask(); again == task {
			t.Errorf("%s: two tasks are both %s", name, task)
		}
	}
	if proxy.UniqueID() != "" || proxy.App() != "" || proxy.Deployment() != "" {
		t.Errorf("a proxy has a replica's identity: %+v", proxy)
	}
	if len(replica.UniqueID()) != 8 || replica.UniqueID() == other.UniqueID() {
		t.Errorf("replica ids %q and %q are not two of eight characters", replica.UniqueID(), other.UniqueID())
	}
	if replica.App() != "app1" || replica.Deployment() != "D" {
		t.Errorf("replica of %q, %q; want app1, D", replica.App(), replica.Deployment())
	}
	if a, b := identity.NewJobID(), identity.NewJobID(); a == b || !hexOf(4).MatchString(a) {
		t.Errorf("job ids %q and %q are not two draws of 4 bytes", a, b)
	}
}
