package serving

import "time"

// DeploymentState says how a deployment is. Its text is Ray's.
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
	// see [DeploymentUnavailableError].
	DeploymentUnavailable
	// DeploymentStopping: the server shuts down, or has.
	DeploymentStopping
)

// String gives "UPDATING", "HEALTHY", "UNHEALTHY", "DEPLOY_FAILED" or "STOPPING".
func (s DeploymentState) String() string {
	return [...]string{"UPDATING", "HEALTHY", "UNHEALTHY", "DEPLOY_FAILED", "STOPPING"}[s]
}

// MarshalText implements [encoding.TextMarshaler]: it gives the String.
func (s DeploymentState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// ReplicaState says how a replica is. Its text is Ray's.
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

// String gives "STARTING", "RUNNING", "UNHEALTHY" or "STOPPING".
func (s ReplicaState) String() string {
	return [...]string{"STARTING", "RUNNING", "UNHEALTHY", "STOPPING"}[s]
}

// MarshalText implements [encoding.TextMarshaler]: it gives the String.
func (s ReplicaState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// DeploymentStatus is a deployment at one moment.
type DeploymentStatus struct {
	App   string          `json:"app"`
	Name  string          `json:"name"`
	State DeploymentState `json:"state"`
	// Error is what went wrong since the deployment was healthy last; empty for
	// nothing.
	Error string `json:"error,omitempty"`
	// The settings that hold, and how many requests wait for a replica.
	NumReplicas        int `json:"num_replicas"`
	MaxOngoingRequests int `json:"max_ongoing_requests"`
	MaxQueuedRequests  int `json:"max_queued_requests"`
	Queued             int `json:"queued"`
	// Replicas are those that have not ended, oldest first.
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus is a replica at one moment.
type ReplicaStatus struct {
	ID    string       `json:"id"` // its unique id
	State ReplicaState `json:"state"`
	// Since is when it came to be in that state.
	Since time.Time `json:"since"`
	// Ongoing is how many requests it has.
	Ongoing int `json:"ongoing"`
	// Models are those that it holds or loads.
	Models []string `json:"models,omitempty"`
}

func (s *replicaSet) status() DeploymentStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	queued, _ := s.router.load()
	d := DeploymentStatus{
		App:                s.app,
		Name:               s.deployment.name,
		State:              s.stateLocked(),
		NumReplicas:        s.want.replicas,
		MaxOngoingRequests: s.want.maxOngoing,
		MaxQueuedRequests:  s.want.maxQueued,
		Queued:             queued,
		Replicas:           make([]ReplicaStatus, len(s.replicas)),
	}
	if s.condition.fault != nil {
		d.Error = s.condition.fault.Error()
	}
	for i, l := range s.replicas {
		d.Replicas[i] = ReplicaStatus{
			ID:      l.uniqueID(),
			State:   l.state,
			Since:   l.since,
			Ongoing: l.replica.scope.Metrics.Processing(),
			Models:  l.replica.models(),
		}
	}
	return d
}
