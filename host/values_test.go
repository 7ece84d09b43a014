package host

import "time"

// Values of the policy that tests of behaviour rely on. The packages below internal
// have them, with reasons.
const (
	firstRetry    = 200 * time.Millisecond // pause of a batch that is sent again
	longestRetry  = 5 * time.Second
	firstProbe    = 200 * time.Millisecond // pause of a back end that is away
	longestProbe  = 2 * time.Second
	outageMisses  = 8 // failed calls in a row, in outageTime, make an outage
	outageTime    = 2 * time.Second
	retriesAtOnce = 64               // batches that wait to be sent again
	crashesAlone  = 2                // put a batch into quarantine
	failuresKept  = 8                // for the status
	reasonsLogged = 8                // in one trouble
	calmTime      = 10 * time.Second // without failures ends a trouble
)
