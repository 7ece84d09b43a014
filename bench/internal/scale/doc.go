// Package scale measures how the costs of package spanpath change with the
// number of producers, of exporters, of attributes and of spans a second; what
// a start costs until the first span is delivered; what an idle process costs;
// and whether memory stays flat while the sink is down (Soak).
//
// The sweeps (sweeps.go) are spanpath's rows under loads that differ in one
// number; each point is a shape with a round of its own rows, the SDK floor
// among them, for that changes too. Starts (start.go) are processes whose
// moments are read off one clock. Idle processes (idle.go) of all kinds stand
// side by side in one window, and the kernel counts how often they run. The
// soak (soak.go, verdict.go) is no case: it takes an hour, and has a verdict
// instead of a claim.
//
// Open sweeps.go first.
package scale
