package tracing

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/servetrace/servetrace/internal/ended"
)

// Shapes are right however many there are, which is more than are kept.
func TestSpanShapesConcurrentSafe(t *testing.T) {
	var shapes spanShapes
	naming := Config{Semconv: SemconvDup}.newNaming()
	replica := newRecorder(t).NewReplica("a", "D")
	draws := []drawShape{drawProxy, drawRouter, drawReplica}
	check := func(k spanKind) {
		k.naming = naming
		draw := draws[len(k.family.Name)%len(draws)]
		start, end := attributes{naming: naming}, attributes{naming: naming}
		start.inside(replica)
		name := draw(&start, &end, k, replica)
		got, _ := shapes.of(replica, &k, draw)
		if got.Name != name || got.odd != (start.odd || end.odd) || !bytes.Equal(got.Start, start.all) || !bytes.Equal(got.End, end.all) {
			t.Errorf("%+v: name %q, odd %t, attributes %q and %q, want %q, %t, %q and %q",
				k, got.Name, got.odd, got.Start, got.End, name, start.odd || end.odd, start.all, end.all)
		}
	}
	families := []*ended.Like{{Name: "f"}, {Name: "fa"}, {Name: "fam"}}
	long := strings.Repeat("m", longestShape)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 500 {
				n := fmt.Sprint(i % 300)
				for _, family := range families {
					check(spanKind{family: family, deployment: "D" + n, method: "m", route: "/r", app: "a"})
					check(spanKind{family: family, deployment: "D", method: n, route: "/r", app: "a"})
					check(spanKind{family: family, deployment: "D", method: "m", route: "/" + n, app: "a"})
					check(spanKind{family: family, deployment: "D", method: "m", app: "a" + n})
					check(spanKind{family: family, deployment: "D", method: "m", modelID: n})
					check(spanKind{family: family, deployment: "D", method: "m", protocol: Protocol(i % 4)})
					check(spanKind{family: family, deployment: "D", method: "m", streaming: i%2 == 0})
					check(spanKind{family: family, deployment: "D", method: "odd\xff"})
				}
				check(spanKind{family: families[0], deployment: "D", method: long, route: n})
			}
		})
	}
	all.Wait()
	for i := range shapes {
		for j := range shapes[i] {
			if s := shapes[i][j].Load(); s != nil && (s.text() > longestShape || s.modelID != "") {
				t.Errorf("a shape of %d bytes, of model %q, is kept", s.text(), s.modelID)
			}
		}
	}
}

// Two shapes that have one place are both kept.
func TestSpanShapesOfOnePlace(t *testing.T) {
	var shapes spanShapes
	naming := DefaultConfig().newNaming()
	family := &ended.Like{Name: "f"}
	of := func(app string) *spanShape {
		// The place is not by the application.
		s, _ := shapes.of(nil, &spanKind{family: family, deployment: "D", method: "m", app: app, naming: naming}, drawReplica)
		return s
	}
	a, b := of("a"), of("b")
	if of("a") != a || of("b") != b {
		t.Error("one has driven out the other")
	}
	if of("c"); of("b") != b {
		t.Error("the newer one has gone")
	}
}
