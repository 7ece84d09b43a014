package serving

import "github.com/servetrace/servetrace/serving/internal/router"

// DeploymentState is the state of a deployment. Its text is Ray's: "UPDATING",
// "HEALTHY", "UNHEALTHY", "DEPLOY_FAILED" or "STOPPING".
type DeploymentState = router.DeploymentState

// The states of a deployment.
const (
	// DeploymentUpdating means that replicas are starting, and that nothing has failed.
	DeploymentUpdating = router.DeploymentUpdating
	// DeploymentHealthy means that the wanted number of replicas take calls.
	DeploymentHealthy = router.DeploymentHealthy
	// DeploymentUnhealthy means that a replica has failed, or has failed to start, and that
	// another replica is to replace it. Other replicas may take calls.
	DeploymentUnhealthy = router.DeploymentUnhealthy
	// DeploymentUnavailable means that all replicas have failed to start, and that no further
	// start follows. See [DeploymentUnavailableError].
	DeploymentUnavailable = router.DeploymentUnavailable
	// DeploymentStopping means that the server shuts down, or has shut down.
	DeploymentStopping = router.DeploymentStopping
)

// ReplicaState is the state of a replica. Its text is Ray's: "STARTING", "RUNNING",
// "UNHEALTHY" or "STOPPING".
type ReplicaState = router.ReplicaState

// The states of a replica.
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

// DeploymentStatus is the status of a deployment at one moment. Error is the last fault
// since the deployment was healthy, or "". NumReplicas, MaxOngoingRequests and
// MaxQueuedRequests are the current settings. Queued is the number of requests that wait
// for a replica. Replicas has the replicas that have not ended, oldest first. A
// DeploymentStatus can be encoded as JSON.
//
// If other processes run the deployment, Target is the address of these processes as in
// [CallConfig.Remote], NumReplicas is the number of processes that take calls, and
// MaxOngoingRequests is the sum of their limits. Error is then the reason for
// which processes cannot be found or reached.
type DeploymentStatus = router.DeploymentStatus

// ReplicaStatus is the status of a replica at one moment. ID is the unique id of the
// replica, and Since is the time at which the replica entered State. Ongoing is the number
// of calls that it runs. Models are the ids of the models that it holds or loads.
type ReplicaStatus = router.ReplicaStatus
