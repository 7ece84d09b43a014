package collectorplugin

import (
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"

	"github.com/servetrace/servetrace/pluginsdk"
)

// answer returns the plugin's answer for an error of a component. Only an error that the
// Collector calls permanent is final, as in the Collector, whatever gRPC status it has.
func answer(err error) error {
	if consumererror.IsPermanent(err) {
		return pluginsdk.Permanent(err)
	}
	return pluginsdk.RetryAfter(err, throttled(err))
}

// throttled returns the delay that the back end asked for, or zero. Only the text of the
// Collector's error has this delay: exporterhelper.NewThrottleRetry makes it "Throttle (5s),
// error: …".
func throttled(err error) time.Duration {
	for ; err != nil; err = errors.Unwrap(err) {
		text, found := strings.CutPrefix(err.Error(), "Throttle (")
		if delay, _, closed := strings.Cut(text, ")"); found && closed {
			d, _ := time.ParseDuration(delay) // d is zero if the text is no duration
			return d
		}
	}
	return 0
}
