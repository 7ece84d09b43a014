package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// countedVector counts the deletions.
type countedVector struct{ direct, matches int }

func (v *countedVector) DeleteLabelValues(...string) bool { v.direct++; return true }

func (v *countedVector) DeletePartialMatch(prometheus.Labels) int { v.matches++; return 1 }

// TestStoppedReplicaIsDeletedDirectly: a match of labels reads the series of all replicas,
// so that the stop of many would take quadratic time.
func TestStoppedReplicaIsDeletedDirectly(t *testing.T) {
	one, routes := new(countedVector), new(countedVector)
	all := ofReplica(nil, one, []string{labelApp, labelDeployment, labelReplica})
	all = ofReplica(all, routes, []string{labelApp, labelDeployment, labelReplica, labelRoute})
	all = ofReplica(all, new(countedVector), []string{labelApp, labelDeployment})
	if len(all) != 2 {
		t.Errorf("%d vectors have replicas, want 2", len(all))
	}
	New().Replica("a", "D", "r").forget(all)
	if *one != (countedVector{direct: 1}) || *routes != (countedVector{matches: 1}) {
		t.Errorf("deletions %+v of the vector with one series, %+v of the one with routes", *one, *routes)
	}
}
