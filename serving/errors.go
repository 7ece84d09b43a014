package serving

import "github.com/servetrace/servetrace/serving/internal/cause"

// The reasons for which the runtime ends a request before its handler has ended. A handler
// gets the reason by [context.Cause] of its request's context, except as noted below. The
// context's own error stays [context.DeadlineExceeded] or [context.Canceled]. Statuses
// below are HTTP statuses. docs/how-to/grpc.md has the gRPC codes.
var (
	// ErrRequestTimeout: the request was not answered within
	// [Config.RequestTimeout], or [WithRequestTimeout] of its app. The client got
	// status 408, or a cut stream if the response had begun. It matches
	// [context.DeadlineExceeded].
	ErrRequestTimeout = cause.ErrRequestTimeout

	// ErrClientStalled: for [Config.StallTimeout] the client sent nothing of the body that
	// the handler was reading, or took nothing of its response. The handler's Read or Write
	// fails with it. If the handler then returns an error, or has written nothing, its
	// client gets 408, or a cut response. If the request came by HTTP/1.1, or if the client
	// takes nothing, its context ends too, but without this cause. It matches
	// [context.DeadlineExceeded].
	ErrClientStalled = cause.ErrClientStalled

	// ErrClientGone: the client closed its connection, or only its sending half, or reset
	// its HTTP/2 stream, before it had the whole response. The handler's answer is sent
	// all the same. If there is none, span and log have status 499. It matches
	// [context.Canceled]. Contexts of web sockets and of gRPC calls end with it. The
	// context of another HTTP request ends without this cause, because net/http gives
	// none.
	ErrClientGone = cause.ErrClientGone

	// ErrSocketClosed: the web socket, or the connection that the handler took
	// over for another protocol, has been closed: by a close frame of either
	// side, or by the handler. It matches [context.Canceled]. If a client left
	// without a close frame, the cause is ErrClientGone.
	ErrSocketClosed = cause.ErrSocketClosed

	// ErrClientDeadline: the deadline that a gRPC client has set for its call has
	// passed. It matches [context.DeadlineExceeded].
	ErrClientDeadline = cause.ErrClientDeadline

	// ErrReplicaStopped: the replica of the request was replaced or no longer wanted, and
	// the request ran on beyond the deployment's graceful shutdown timeout. The client
	// got status 500, or a cut stream if the response had begun, or the close code 1012
	// on a web socket. The request's context ends without this cause. It matches
	// [context.Canceled].
	ErrReplicaStopped = cause.ErrReplicaStopped

	// ErrShuttingDown: the server's [Server.Shutdown] ran out of time. The
	// client got status 503, a cut stream if the response had begun, or the
	// close code 1001 on a web socket. It matches [context.Canceled].
	ErrShuttingDown = cause.ErrShuttingDown
)

// QueueFullError is the error of a request that came when its deployment's queue was at
// its limit. The client gets StatusCode at once. A handler that receives the error from
// another deployment and returns it passes the status on.
//
// Deployment is the deployment's name, Queued the number of requests that were waiting,
// and Limit its max_queued_requests. StatusCode is 503 or 429, and RetryAfter the pause
// that the client is asked for, or zero: see [WithBackpressure]. Any other StatusCode
// counts as 503. The text is Ray's.
type QueueFullError = cause.QueueFullError

// DeploymentUnavailableError is the error of a request for a deployment without replicas.
// Each try to start a replica has failed, and no further try follows by itself. Waiting
// requests fail with it too. The client gets status 503. A new user config, or another
// number of replicas, starts new tries. A handler that receives the error from another
// deployment and returns it passes the 503 on.
//
// App and Deployment are names, Tries is the number of failed starts, and Reason the
// error of the last one. The text is Ray's. The text has neither Tries nor Reason,
// because clients see the text.
type DeploymentUnavailableError = cause.DeploymentUnavailableError
