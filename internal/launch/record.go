package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/printable"
)

// levelPrefixes are those that hclog users print by habit.
var levelPrefixes = []struct {
	prefix string
	level  slog.Level
}{
	{"[TRACE]", slog.LevelDebug}, {"[DEBUG]", slog.LevelDebug}, {"[INFO]", slog.LevelInfo},
	{"[WARN]", slog.LevelWarn}, {"[ERROR]", slog.LevelError},
}

// plainLevel is the level of a line that is no record. A stack is no error line
// by line: the host tells of a crash once, with the stack in that record.
func plainLevel(text string) slog.Level {
	for _, l := range levelPrefixes {
		if strings.HasPrefix(text, l.prefix) {
			return l.level
		}
	}
	return slog.LevelInfo
}

// record is a log line in the form of hclog's JSON, which pluginsdk writes too.
// It is as the plugin wrote it: not to be shown before clean.
type record struct {
	level   slog.Level
	message string
	attrs   []slog.Attr // all strings
}

func parseRecord(text string) (record, bool) {
	if !strings.HasPrefix(text, "{") {
		return record{}, false
	}
	var fields map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // or 12345678 becomes 1.2345678e+07
	if err := decoder.Decode(&fields); err != nil {
		return record{}, false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return record{}, false // more follows
	}
	message, ok := fields["@message"].(string)
	if !ok {
		return record{}, false
	}
	r := record{message: message, level: slog.LevelInfo}
	switch name, _ := fields["@level"].(string); name {
	case "trace", "debug":
		r.level = slog.LevelDebug
	case "warn":
		r.level = slog.LevelWarn
	case "error":
		r.level = slog.LevelError
	}
	keys := make([]string, 0, len(fields))
	for key := range fields {
		if !strings.HasPrefix(key, "@") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		r.attrs = append(r.attrs, slog.String(key, fmt.Sprint(fields[key])))
	}
	return r, true
}

// hostKeys are keys of the host's own: a plugin's have an underscore before
// them, or it could give a line another time, or another plugin's name.
var hostKeys = []string{slog.TimeKey, slog.LevelKey, slog.MessageKey, slog.SourceKey, "plugin", "pid"}

// clean is the record as it may be shown, and how many bytes that is.
func (r record) clean(secrets *redactor) (record, int) {
	show := func(text string) string { return printable.Text(secrets.text(text)) }
	r.message = show(r.message)
	size := len(r.message)
	for i, attr := range r.attrs {
		key := show(attr.Key)
		if slices.Contains(hostKeys, key) {
			key = "_" + key
		}
		r.attrs[i] = slog.String(key, show(attr.Value.String()))
		size += len(key) + len(r.attrs[i].Value.String())
	}
	return r, size
}
