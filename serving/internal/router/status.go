package router

import "time"

// DeploymentState is the state of a deployment. Its text is Ray's.
type DeploymentState int

// The states of a deployment.
const (
	// DeploymentUpdating means that replicas are starting, and that nothing has failed.
	DeploymentUpdating DeploymentState = iota
	// DeploymentHealthy means that the wanted number of replicas take calls.
	DeploymentHealthy
	// DeploymentUnhealthy means that a replica has failed, or has failed to start, and that
	// another replica is to replace it. Other replicas may take calls.
	DeploymentUnhealthy
	// DeploymentUnavailable means that all replicas have failed to start, and that no further
	// start follows. See DeploymentUnavailableError of package serving.
	DeploymentUnavailable
	// DeploymentStopping means that the server shuts down, or has shut down.
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

// The states of a replica.
const (
	// ReplicaStarting means that the replica is being constructed, configured or checked for
	// the first time.
	ReplicaStarting ReplicaState = iota
	// ReplicaRunning means that the replica takes calls.
	ReplicaRunning
	// ReplicaUnhealthy means that the replica takes calls until another replica replaces it.
	ReplicaUnhealthy
	// ReplicaStopping means that the replica takes no new calls.
	ReplicaStopping
)

// String returns "STARTING", "RUNNING", "UNHEALTHY" or "STOPPING".
func (s ReplicaState) String() string {
	return [...]string{"STARTING", "RUNNING", "UNHEALTHY", "STOPPING"}[s]
}

// MarshalText implements [encoding.TextMarshaler]: it returns the String.
func (s ReplicaState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DeploymentStatus is the status of a deployment at one moment.
type DeploymentStatus struct {
	App   string          `json:"app"`
	Name  string          `json:"name"`
	State DeploymentState `json:"state"`
	// Error is the last fault since the deployment was healthy; empty for none. If Target is
	// set, it is the reason for which the other processes cannot be found or reached.
	Error string `json:"error,omitempty"`
	// The current settings. If other processes run the deployment, NumReplicas is the number
	// of processes that take calls, and MaxOngoingRequests is the sum of their capacities.
	NumReplicas        int `json:"num_replicas"`
	MaxOngoingRequests int `json:"max_ongoing_requests"`
	MaxQueuedRequests  int `json:"max_queued_requests"`
	// Queued is the number of requests that wait for a replica.
	Queued int `json:"queued"`
	// Target is the address of the other processes that run the deployment. Empty if this
	// process runs it.
	Target string `json:"target,omitempty"`
	// Replicas has the replicas that have not ended, oldest first. If other processes run the
	// deployment, it has an entry for each process, with the address as the id.
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus is the status of a replica at one moment.
type ReplicaStatus struct {
	ID    string       `json:"id"` // unique id of the replica
	State ReplicaState `json:"state"`
	// Since is the time at which the replica entered the state.
	Since time.Time `json:"since"`
	// Ongoing is the number of calls that the replica runs.
	Ongoing int `json:"ongoing"`
	// Models are the ids of the models that the replica holds or loads.
	Models []string `json:"models,omitempty"`
}
