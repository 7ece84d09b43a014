package serving

import (
	"context"

	"github.com/servetrace/servetrace/internal/spans/identity"
	"github.com/servetrace/servetrace/serving/internal/scope"
)

// ReplicaID is the permanent name of one replica of one deployment of one app.
type ReplicaID struct {
	App, Deployment string
	UniqueID        string // eight lower-case letters and digits, chosen at random
}

// String returns "app#deployment#uniqueid", the value of serve.replica_id.
func (id ReplicaID) String() string { return id.App + "#" + id.Deployment + "#" + id.UniqueID }

// ReplicaInfo names the replica in which user code runs.
type ReplicaInfo struct {
	App        string
	Deployment string
	ReplicaID  ReplicaID
}

// ReplicaContext returns the replica that runs the handler or function with the context
// ctx, or with a context that ctx is derived from. It returns false outside of handlers
// and functions. It is Ray's get_replica_context.
func ReplicaContext(ctx context.Context) (ReplicaInfo, bool) {
	c := scope.FromContext(ctx)
	if c == nil {
		return ReplicaInfo{}, false
	}
	id := ReplicaID{App: c.Replica.App, Deployment: c.Replica.Deployment, UniqueID: c.Replica.UniqueID}
	return ReplicaInfo{App: id.App, Deployment: id.Deployment, ReplicaID: id}, true
}

// ModelID returns the id of the multiplexed model that the call with the context ctx
// is for. It is empty if the call is for none, and outside of a call. It is Ray's
// get_multiplexed_model_id.
func ModelID(ctx context.Context) string { return identity.ModelID(ctx) }
