package serving

import (
	"context"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// ReplicaID identifies a replica of a deployment. It does not change during the life of the
// replica.
type ReplicaID struct {
	App, Deployment string
	UniqueID        string // eight lower-case letters and digits, chosen at random
}

// String returns "app#deployment#uniqueid", the value of the span attribute
// serve.replica_id.
func (id ReplicaID) String() string { return id.App + "#" + id.Deployment + "#" + id.UniqueID }

// ReplicaInfo names the replica in which user code runs.
type ReplicaInfo struct {
	App        string
	Deployment string
	ReplicaID  ReplicaID
}

// ReplicaContext returns the replica that runs the current handler or function. ctx must be
// the context of the handler or function, or derived from it. Otherwise ReplicaContext
// returns false. It corresponds to Ray's get_replica_context.
func ReplicaContext(ctx context.Context) (ReplicaInfo, bool) {
	c := scope.FromContext(ctx)
	if c == nil {
		return ReplicaInfo{}, false
	}
	id := ReplicaID{App: c.Replica.App, Deployment: c.Replica.Deployment, UniqueID: c.Replica.UniqueID}
	return ReplicaInfo{App: id.App, Deployment: id.Deployment, ReplicaID: id}, true
}

// ModelID returns the id of the multiplexed model that the current call names. ctx must be
// the context of the call, or derived from it. ModelID returns "" if the call names no model,
// and outside of a call. It corresponds to Ray's get_multiplexed_model_id.
func ModelID(ctx context.Context) string { return identity.ModelID(ctx) }
