// Package router has the replicas of deployments, and chooses one for each call.
//
// The life of a [Deployment]:
//
//  1. New makes it, with its router and an empty [ReplicaSet].
//  2. ReplicaSet.Start constructs the replicas in the background, or at once if there is
//     nothing to construct. From then on unhealthy replicas are replaced.
//  3. A proxy or a handle calls Assign for each call. The router takes a free slot of a
//     replica, or puts the call into a queue. Then [Assignment.Run] or [Assignment.Start]
//     makes the replica run the [Call].
//  4. [Changes] change the settings while calls run.
//  5. ReplicaSet.Stop and Wait end the replicas after their last calls.
//
// Other processes may run the replicas. Join adds such a process to the deployment, and a
// handle calls Forward in place of Assign. Forward takes one of the slots of a process and
// offers the call to the process, which accepts or refuses it. That process calls Accept in
// place of Assign.
//
// The package knows no protocol, because a proxy or a handle makes a Call from each request.
// It reads no configuration, because package serving passes it the settings.
//
// Open deployment.go first, then router.go, pool.go, assignment.go, replica.go,
// replicaset.go and replicalife.go. For other processes open peer.go and accept.go.
package router
