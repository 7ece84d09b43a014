package metrics

import (
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

// deletions is a vector that records the deleted series.
type deletions []string

func (d *deletions) DeleteLabelValues(values ...string) bool {
	*d = append(*d, strings.Join(values, " "))
	return true
}

// A replica deletes its own series only. A search through the series of all replicas would
// make the stop of many replicas take quadratic time.
func TestReplicaDeletesItsOwnSeries(t *testing.T) {
	var single, routes, functions, models, others deletions
	var all []replicaVector
	labels := []string{labelApp, labelDeployment, labelReplica}
	all = ofReplica(all, &single, labels)
	all = ofReplica(all, &routes, append(labels, labelRoute))
	all = ofReplica(all, &functions, append(labels, labelFunction))
	all = ofReplica(all, &models, append(labels, labelModel))
	all = ofReplica(all, &others, labels[:2])
	s := New()
	for _, id := range []string{"r1", "r2"} {
		r := s.Replica("a", "D", id)
		r.Done("/"+id, 0, false, trace.SpanContext{})
		r.Done("/", 0, false, trace.SpanContext{})
		r.Batcher("f" + id)
		r.Models().Hold([]string{"m" + id})
		if id == "r2" {
			r.forget(all)
		}
	}
	for _, tt := range []struct {
		got  deletions
		want []string
	}{
		{single, []string{"a D r2"}},
		{routes, []string{"a D r2 /", "a D r2 /r2"}},
		{functions, []string{"a D r2 fr2"}},
		{models, []string{"a D r2 mr2"}},
		{others, nil},
	} {
		slices.Sort(tt.got)
		if !slices.Equal(tt.got, tt.want) {
			t.Errorf("deleted %q, want %q", tt.got, tt.want)
		}
	}
}
