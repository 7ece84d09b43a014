package collectorplugin

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/pdata/pcommon"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/servetrace/servetrace/pluginsdk"
)

// telemetry returns the logger, meter and tracer of a component. The component logs to the
// plugin's log. Its metrics and spans are dropped, because the host counts spans and calls.
func telemetry(s pluginsdk.Setup, f component.Factory) component.TelemetrySettings {
	return component.TelemetrySettings{
		Logger:         zap.New(logCore{s.Log.With("component", f.Type().String())}),
		TracerProvider: tracenoop.NewTracerProvider(),
		MeterProvider:  metricnoop.NewMeterProvider(),
		Resource:       pcommon.NewResource(),
	}
}

// buildInfo returns the name and version of this program, for example for a User-Agent.
func buildInfo() component.BuildInfo {
	return component.BuildInfo{Command: "servetrace", Description: "servetrace plugin", Version: pluginsdk.Version()}
}

// logCore is a zapcore.Core that writes the entries of a zap.Logger to a slog.Logger.
type logCore struct{ log *slog.Logger }

var _ zapcore.Core = logCore{}

// Enabled implements zapcore.Core.
func (c logCore) Enabled(level zapcore.Level) bool {
	return c.log.Enabled(context.Background(), slogLevel(level))
}

// With implements zapcore.Core.
func (c logCore) With(fields []zapcore.Field) zapcore.Core {
	return logCore{c.log.With(attributes(fields)...)}
}

// Check implements zapcore.Core. It drops the message that the Collector's exporters log for
// each failed call, because the plugin answers with the same error, and the host logs it.
func (c logCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasPrefix(e.Message, "Exporting failed. Rejecting data.") || !c.Enabled(e.Level) {
		return checked
	}
	return checked.AddCore(e, c)
}

// Write implements zapcore.Core.
func (c logCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.log.Log(context.Background(), slogLevel(e.Level), e.Message, attributes(fields)...)
	return nil
}

// Sync implements zapcore.Core.
func (logCore) Sync() error { return nil }

// slogLevel returns the level of slog for a level of zap.
func slogLevel(level zapcore.Level) slog.Level {
	switch {
	case level < zapcore.InfoLevel:
		return slog.LevelDebug
	case level < zapcore.WarnLevel:
		return slog.LevelInfo
	case level < zapcore.ErrorLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// attributes returns fields as arguments for a slog.Logger, sorted by key. It leaves out the
// stack of an error, which zap has under errorVerbose.
func attributes(fields []zapcore.Field) []any {
	values := zapcore.NewMapObjectEncoder()
	for _, field := range fields {
		field.AddTo(values)
	}
	var attrs []any
	for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
		if key != "errorVerbose" {
			attrs = append(attrs, slog.Any(key, values.Fields[key]))
		}
	}
	return attrs
}

// componentHost is the component.Host of a plugin. It has no extensions.
type componentHost struct{ log *slog.Logger }

var _ componentstatus.Reporter = componentHost{}

// GetExtensions implements component.Host.
func (componentHost) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{}
}

// Report implements componentstatus.Reporter. It only logs errors. A Collector ends after a
// fatal error, but the plugin goes on, and its answers have the errors of its calls.
func (h componentHost) Report(e *componentstatus.Event) {
	if componentstatus.StatusIsError(e.Status()) {
		h.log.Error("component reports a failure", "status", e.Status().String(), "error", e.Err())
	}
}
