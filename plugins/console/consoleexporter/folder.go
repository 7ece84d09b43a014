package consoleexporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"

	"github.com/servetrace/servetrace/pluginsdk"
	"github.com/servetrace/servetrace/semconv"
)

// toFolder writes each span to the file of its component in the folder, as Ray
// Serve's default exporter does.
func toFolder(chosen settings, node string) (pluginsdk.Exporter, error) {
	dir := chosen.output
	// Spans carry routes and request ids: nobody's business but the group's.
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, &pluginsdk.ConfigError{Path: chosen.outputFrom, Err: fmt.Errorf("make the folder: %w", err)}
	}
	names := naming{node: node, hostPID: os.Getppid()}
	var writing sync.Mutex
	return pluginsdk.ExportFunc(func(ctx context.Context, batch *pluginsdk.Batch) (err error) {
		open := files{dir: dir, writing: &writing, byName: map[string]spanFile{}}
		defer func() { err = errors.Join(err, open.close()) }()
		return render(ctx, batch, func(span pluginsdk.Span) (io.Writer, error) {
			return open.file(names.file(span))
		})
	}), nil
}

// files are those that one batch has opened.
type files struct {
	dir     string
	writing *sync.Mutex // of all batches
	byName  map[string]spanFile
}

// spanFile is appended to, a whole span or nothing of it: readers take it line by
// line, or JSON by JSON, and half of one would cost them the next.
type spanFile struct {
	*os.File
	writing *sync.Mutex
}

// Write takes back what a full disk has left room for of a span. Batches take
// turns, so that no other's span is behind it.
func (f spanFile) Write(span []byte) (int, error) {
	f.writing.Lock()
	defer f.writing.Unlock()
	n, err := f.File.Write(span)
	if err == nil || n == 0 {
		return n, err
	}
	if back := f.takeBack(int64(n)); back != nil {
		return n, errors.Join(err, fmt.Errorf("the file keeps a part of a span: %w", back))
	}
	return 0, err
}

// takeBack cuts off the last n bytes that were written, where they are the last
// of the file: the process that this one replaces, or is replaced by, may write
// to it as well.
func (f spanFile) takeBack(n int64) error {
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != end {
		return errors.New("another process has written behind it")
	}
	return f.Truncate(end - n)
}

// file opens a file for appending, once.
func (f *files) file(name string) (io.Writer, error) {
	if file, open := f.byName[name]; open {
		return file, nil
	}
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("open span file: %w", err)
	}
	f.byName[name] = spanFile{file, f.writing}
	return f.byName[name], nil
}

// close closes all. An error may be the disk's word on a write before.
func (f *files) close() error {
	var faults []error
	for _, file := range f.byName {
		if err := file.Close(); err != nil {
			faults = append(faults, fmt.Errorf("close span file: %w", err))
		}
	}
	return errors.Join(faults...)
}

// naming is what a file's name is made of beside the span.
type naming struct {
	// node is the machine's address; empty: unknown.
	node string
	// hostPID is the process that started the plugin.
	hostPID int
}

// file is the name of the file that a span belongs to:
// replica_APP_DEPLOYMENT_ID for spans inside a replica, proxy_NODE for the
// other spans of a request, SERVICE_INSTANCE for the rest.
func (n naming) file(span pluginsdk.Span) string {
	if id := text(span.Attribute(semconv.ServeReplicaID)); id != "" {
		return fileName("replica", strings.Split(id, "#")...)
	}
	if id := text(span.Attribute(semconv.ServeRequestID)); id != "" {
		return fileName("proxy", cmp.Or(n.node, "localhost"))
	}
	resource := span.Resource()
	service := cmp.Or(text(resource.Attribute("service.name")), "unknown_service")
	instance := cmp.Or(
		text(resource.Attribute("service.instance.id")),
		text(resource.Attribute("process.pid")),
		strconv.Itoa(n.hostPID))
	return fileName(service, instance)
}

// text is an attribute's value as text, empty where there is none.
func text(value attribute.Value, ok bool) string {
	if !ok {
		return ""
	}
	return value.String()
}

// maxStem keeps a name within the 255 bytes that file systems allow.
const maxStem = 200

// fileName joins parts as Ray does; what does not fit into a file's name
// becomes an underscore.
func fileName(first string, more ...string) string {
	stem := []byte(strings.Join(append([]string{first}, more...), "_"))
	for i, c := range stem {
		if !fileByte(c) {
			stem[i] = '_'
		}
	}
	return string(stem[:min(len(stem), maxStem)]) + "_tracing.json"
}

func fileByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '-' || c == '_'
}
