package supervise

import (
	"time"

	"github.com/servetrace/servetrace/host/internal/pluginlist"
)

// policy has the pauses and log texts that are different for a plugin that this host
// starts and for a plugin that it attaches to.
type policy struct {
	// mostPause is the longest pause before a start. If a process was ready for
	// steadyAfter, the next pauses start from the first pause again, and an attached plugin
	// is dialled again at once.
	mostPause, steadyAfter time.Duration
	// hung is the log message if the plugin is hung. ended is the first part of the error
	// for a process that has ended, or for a lost connection.
	hung, ended string
}

var (
	launched = policy{
		mostPause: 30 * time.Second, steadyAfter: 10 * time.Second,
		hung:  "plugin answers neither calls nor a health check: it is killed and started again",
		ended: "plugin ended",
	}
	attached = policy{
		mostPause: 5 * time.Second, steadyAfter: time.Second, // short, because dialling costs little
		hung:  "plugin answers neither calls nor a health check: its connection is closed and dialled again, the process is left alone",
		ended: "connection to the plugin ended",
	}
)

func policyOf(entry pluginlist.Entry) policy {
	if entry.Attached {
		return attached
	}
	return launched
}
