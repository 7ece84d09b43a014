package serving

import "github.com/servetrace/servetrace/serving/internal/cause"

// The reasons for which the runtime ends a request before its handler has returned. Unless
// noted otherwise, [context.Cause] of the request's context returns the reason to the
// handler. The Err method of the context returns [context.DeadlineExceeded] or
// [context.Canceled], as usual. The statuses below are HTTP statuses. docs/how-to/grpc.md
// has the gRPC codes.
var (
	// ErrRequestTimeout means that the request was not answered within
	// [Config.RequestTimeout], or within [WithRequestTimeout] of its app. The client gets
	// status 408. If the response has begun, its connection is cut instead. The error matches
	// [context.DeadlineExceeded].
	ErrRequestTimeout = cause.ErrRequestTimeout

	// ErrClientStalled means that the client, for [Config.StallTimeout], sent nothing of the
	// body that the handler was reading, or took nothing of the response that it was writing.
	// The handler's Read or Write fails with this error. If the handler then returns an error,
	// or has written nothing, the client gets status 408 or a cut response. The context of the
	// request ends too if the request came by HTTP/1.1 or the Write has failed, but without
	// this cause. The error matches [context.DeadlineExceeded].
	ErrClientStalled = cause.ErrClientStalled

	// ErrClientGone means that the client closed its connection, or only the half on which it
	// sends, or reset its HTTP/2 stream, before it had the whole response. If the handler
	// answers nevertheless, the answer is sent. Otherwise span and log have status 499. The
	// context of a web socket or a gRPC call ends with this cause. The context of any other
	// HTTP request ends without it, because net/http sets no cause. The error matches
	// [context.Canceled].
	ErrClientGone = cause.ErrClientGone

	// ErrSocketClosed means that the handler's web socket, or a connection that the handler
	// took over for another protocol, was closed by a close frame of either side, or by the
	// handler. If the client left without a close frame, the cause is ErrClientGone. The error
	// matches [context.Canceled].
	ErrSocketClosed = cause.ErrSocketClosed

	// ErrClientDeadline means that the deadline has passed that a gRPC client had set for its
	// call. The error matches [context.DeadlineExceeded].
	ErrClientDeadline = cause.ErrClientDeadline

	// ErrReplicaStopped means that the replica of the request was replaced or no longer
	// wanted, and the request had not ended within the graceful shutdown timeout of the
	// deployment. The client gets status 500, or a cut response if it has begun, or the close
	// code 1012 on a web socket. The request's context ends without this cause. The error
	// matches [context.Canceled].
	ErrReplicaStopped = cause.ErrReplicaStopped

	// ErrShuttingDown means that the context of [Server.Shutdown] ended before the request.
	// The client gets status 503, or a cut response if it has begun, or the close code 1001 on
	// a web socket. The error matches [context.Canceled].
	ErrShuttingDown = cause.ErrShuttingDown
)

// QueueFullError is the error of a request that found the queue of its deployment at its
// limit. The client gets StatusCode at once. If a handler gets the error from a call of
// another deployment and returns it, the handler's client gets StatusCode, too.
//
// Deployment is the deployment's name. Queued is the number of requests that were waiting,
// and Limit is the deployment's max_queued_requests. StatusCode is 503 or 429. Any other
// value counts as 503. RetryAfter is the time after which the client should try again, or
// zero if the response has no such time; see [WithBackpressure]. The error text is Ray's.
type QueueFullError = cause.QueueFullError

// DeploymentUnavailableError is the error of a request for a deployment after all its
// replicas have failed to start. Requests that already wait fail with it, too. The client gets status
// 503. If a handler gets the error from a call of another deployment and returns it, the
// handler's client gets 503, too. No further start follows until the deployment gets a new
// user config or another number of replicas.
//
// App and Deployment are names. Tries is the number of failed starts, and Reason is the
// error of the last start. The error text is Ray's. It contains neither Tries nor Reason,
// because clients see the text.
type DeploymentUnavailableError = cause.DeploymentUnavailableError
