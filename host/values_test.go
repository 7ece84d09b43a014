package host_test

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
	reasonsLogged = 8                // in one trouble
	calmTime      = 10 * time.Second // without failures ends a trouble

	firstRestart      = 200 * time.Millisecond // pause before a plugin is started again
	longestRestart    = 30 * time.Second
	longestDial       = 5 * time.Second
	steadyTime        = 10 * time.Second // ready for so long, a process is steady
	steadyDial        = time.Second
	crashesToBreak    = 5
	pauseOfBroken     = time.Minute
	heartbeat         = 10 * time.Second
	healthTime        = 2 * time.Second // for the answer to a health check
	timeOfLastAnswers = 250 * time.Millisecond
	timeBetweenLooks  = 5 * time.Second // at the file of an unusable plugin
	causesLogged      = 8
	linesHeld         = 100
	quietOfProof      = 5 * time.Second

	mostSpanBytes  = 3 << 20 // of MaxSpanBytes
	mostBatchBytes = 3 << 20 // of BatchBytes

	attachedHung = "plugin answers neither calls nor a health check: its connection is closed and dialled again, the process is left alone"
)
