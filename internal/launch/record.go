package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/servetrace/servetrace/internal/printable"
)

// levelPrefixes are the beginnings of plain lines that show a level, as hclog and many users
// of package log print them.
var levelPrefixes = []struct {
	prefix string
	level  slog.Level
}{
	{"[TRACE]", slog.LevelDebug}, {"[DEBUG]", slog.LevelDebug}, {"[INFO]", slog.LevelInfo},
	{"[WARN]", slog.LevelWarn}, {"[ERROR]", slog.LevelError},
}

// plainLevel returns the level of a line that is no record. Lines of a stack get the level
// INFO, because the host logs a crash once, with the whole stack.
func plainLevel(text string) slog.Level {
	for _, l := range levelPrefixes {
		if strings.HasPrefix(text, l.prefix) {
			return l.level
		}
	}
	return slog.LevelInfo
}

// record is a log line in hclog's JSON form, which pluginsdk writes, too. Only the result of
// clean may be shown, because a record may contain secrets.
type record struct {
	level   slog.Level
	message string
	attrs   []slog.Attr // their values are strings
}

// parseRecord returns the record in a line, and false if the line is no record.
func parseRecord(text string) (record, bool) {
	if !strings.HasPrefix(text, "{") {
		return record{}, false
	}
	var fields map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber() // otherwise 12345678 would become 1.2345678e+07
	if err := decoder.Decode(&fields); err != nil {
		return record{}, false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return record{}, false // text follows the record, so the line is no record
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
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if !strings.HasPrefix(key, "@") {
			r.attrs = append(r.attrs, slog.String(key, fmt.Sprint(fields[key])))
		}
	}
	return r, true
}

// hostKeys are the keys that the host sets in each log line. If a plugin uses such a key,
// clean puts an underscore before it. So a plugin cannot forge the time or the plugin's name
// in a line.
var hostKeys = []string{slog.TimeKey, slog.LevelKey, slog.MessageKey, slog.SourceKey, "plugin", "pid"}

// clean returns the record without secrets and with visible control characters, and its size
// in bytes. It changes the attributes of r.
func (r record) clean(secrets Redactor) (record, int) {
	show := func(text string) string { return printable.Text(secrets.Text(text)) }
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
