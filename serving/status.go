package serving

import "github.com/servetrace/servetrace/serving/internal/router"

// DeploymentState is the state of a deployment. Its text is Ray's: "UPDATING",
// "HEALTHY", "UNHEALTHY", "DEPLOY_FAILED" or "STOPPING".
type DeploymentState = router.DeploymentState

// The states.
const (
	// DeploymentUpdating means that replicas are being started, and nothing has failed.
	DeploymentUpdating = router.DeploymentUpdating
	// DeploymentHealthy means that the wanted number of replicas take calls.
	DeploymentHealthy = router.DeploymentHealthy
	// DeploymentUnhealthy means that something failed, and is being tried again or replaced.
	// Other replicas may take calls.
	DeploymentUnhealthy = router.DeploymentUnhealthy
	// DeploymentUnavailable means that no replica has started, and no start follows. See
	// [DeploymentUnavailableError].
	DeploymentUnavailable = router.DeploymentUnavailable
	// DeploymentStopping means that the server shuts down, or has shut down.
	DeploymentStopping = router.DeploymentStopping
)

// ReplicaState is the state of a replica. String returns the words of Ray Serve: "STARTING", "RUNNING",
// "UNHEALTHY" or "STOPPING".
type ReplicaState = router.ReplicaState

// The states.
const (
	// ReplicaStarting means that the replica is being constructed, configured or checked for
	// the first time.
	ReplicaStarting = router.ReplicaStarting
	// ReplicaRunning means that the replica takes calls.
	ReplicaRunning = router.ReplicaRunning
	// ReplicaUnhealthy means that the replica takes calls until another replica replaces it.
	ReplicaUnhealthy = router.ReplicaUnhealthy
	// ReplicaStopping means that the replica takes no new calls.
	ReplicaStopping = router.ReplicaStopping
)

// DeploymentStatus is the state of a deployment at one moment. Error is the last fault
// since the deployment was healthy, or "". NumReplicas, MaxOngoingRequests and
// MaxQueuedRequests are the settings in force. Queued is the number of requests that wait
// for a replica. Replicas are the replicas that have not ended, oldest first. A
// DeploymentStatus can be encoded as JSON. If other processes run the deployment, Target
// is the target of these processes, NumReplicas is the number of processes that take
// calls, and MaxOngoingRequests is the sum of their limits. Error is then the reason for
// which processes cannot be found or reached.
type DeploymentStatus = router.DeploymentStatus

// ReplicaStatus is the state of a replica at one moment. ID is the unique id of the
// replica, and Since is the time at which the replica entered State. Ongoing is the
// number of its requests. Models are the ids of the models that it holds or loads.
type ReplicaStatus = router.ReplicaStatus
