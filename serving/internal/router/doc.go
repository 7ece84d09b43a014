// Package router has the replicas of deployments, and chooses one for each call.
//
// The life of a [Deployment]:
//
//  1. New makes it, with its router and an empty [ReplicaSet].
//  2. ReplicaSet.Start constructs the replicas in the background, or at once if there is
//     nothing to construct. From then on unhealthy replicas are replaced.
//  3. A proxy or a handle calls Assign for each call: the router finds a slot of a
//     replica, or has the call wait in a queue. [Assignment.Run] or [Assignment.Start]
//     has the replica run the [Call].
//  4. Changes apply other settings while calls run.
//  5. ReplicaSet.Stop and Wait end the replicas after their last calls.
//
// Other processes may run the replicas. They Join the deployment, and a handle calls Forward.
// As before, the router takes a slot for the call, and then the process accepts or
// refuses the call. In that process, Accept takes the place of Assign.
//
// The package knows no protocol: a proxy or a handle makes a Call of each request. It
// imports no proxy, and package serving makes its settings from the options and
// configurations of users.
//
// Open deployment.go first, then router.go, pool.go, assignment.go, replica.go,
// replicaset.go and replicalife.go. For other processes open peer.go and accept.go.
package router
