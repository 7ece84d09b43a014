package router

import "time"

// DeploymentState is the state of a deployment. Its text is Ray's.
type DeploymentState int

// The states.
const (
	// DeploymentUpdating: replicas are being started, and nothing has failed.
	DeploymentUpdating DeploymentState = iota
	// DeploymentHealthy: as many replicas as are wanted take calls.
	DeploymentHealthy
	// DeploymentUnhealthy: something failed, and is being tried again or
	// replaced. Other replicas may take calls.
	DeploymentUnhealthy
	// DeploymentUnavailable: no replica has started, and none is tried any more;
	// see DeploymentUnavailableError of package serving.
	DeploymentUnavailable
	// DeploymentStopping: the server shuts down, or has.
	DeploymentStopping
)

// String returns "UPDATING", "HEALTHY", "UNHEALTHY", "DEPLOY_FAILED" or "STOPPING".
func (s DeploymentState) String() string {
	return [...]string{"UPDATING", "HEALTHY", "UNHEALTHY", "DEPLOY_FAILED", "STOPPING"}[s]
}

// MarshalText implements [encoding.TextMarshaler]: it returns the String.
func (s DeploymentState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReplicaState is the state of a replica. Its text is Ray's.
type ReplicaState int

// The states.
const (
	// ReplicaStarting: it is being constructed, configured or checked first.
	ReplicaStarting ReplicaState = iota
	// ReplicaRunning: it takes calls.
	ReplicaRunning
	// ReplicaUnhealthy: it takes calls until another has taken its place.
	ReplicaUnhealthy
	// ReplicaStopping: it takes no new calls.
	ReplicaStopping
)

// String returns "STARTING", "RUNNING", "UNHEALTHY" or "STOPPING".
func (s ReplicaState) String() string {
	return [...]string{"STARTING", "RUNNING", "UNHEALTHY", "STOPPING"}[s]
}

// MarshalText implements [encoding.TextMarshaler]: it returns the String.
func (s ReplicaState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DeploymentStatus is a deployment at one moment.
type DeploymentStatus struct {
	App   string          `json:"app"`
	Name  string          `json:"name"`
	State DeploymentState `json:"state"`
	// Error is the last fault since the deployment was healthy; empty for none.
	Error string `json:"error,omitempty"`
	// The settings in force, and how many requests wait for a replica.
	NumReplicas        int `json:"num_replicas"`
	MaxOngoingRequests int `json:"max_ongoing_requests"`
	MaxQueuedRequests  int `json:"max_queued_requests"`
	Queued             int `json:"queued"`
	// Target is the place of the processes that run the deployment, if other processes
	// do. NumReplicas is then the number of processes that take calls, and
	// MaxOngoingRequests the sum of their capacities.
	Target string `json:"target,omitempty"`
	// Replicas are the replicas that have not ended, oldest first. For other processes,
	// their addresses are the ids.
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus is a replica at one moment.
type ReplicaStatus struct {
	ID    string       `json:"id"` // its unique id
	State ReplicaState `json:"state"`
	// Since is the time at which it entered the state.
	Since time.Time `json:"since"`
	// Ongoing is how many requests it has.
	Ongoing int `json:"ongoing"`
	// Models are the ids of the models that it holds or loads.
	Models []string `json:"models,omitempty"`
}
