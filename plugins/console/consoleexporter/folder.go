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

// toFolder returns an exporter that writes each span as JSON to a file in the folder
// chosen.output. Like Ray Serve's default exporter, it has a file for each replica and
// proxy. node is the machine's address.
func toFolder(chosen settings, node string) (pluginsdk.Exporter, error) {
	dir := chosen.output
	// Spans contain routes and request ids, so only the owner and the group may read the
	// files.
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, &pluginsdk.ConfigError{Path: chosen.outputFrom, Err: fmt.Errorf("create the folder: %w", err)}
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

// files holds the files that are open while one batch is written.
type files struct {
	dir     string
	writing *sync.Mutex // held during each Write to any file; shared by all batches
	byName  map[string]spanFile
}

// spanFile is a file to which only whole spans are appended. Programs parse it as a
// sequence of JSON texts, so after a partial span they could not read the next span.
type spanFile struct {
	*os.File
	writing *sync.Mutex
}

// Write appends a span. If it can write only a part of the span, as on a full disk, it
// removes that part. It holds the mutex writing, so that no other batch appends to the
// file meanwhile.
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

// takeBack removes the n bytes that were written last. It returns an error if they are
// not at the end of the file, because another process, such as the previous process of
// this plugin, may have written after them.
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

// file returns the file with this name. It opens the file for appending, unless the batch
// has opened it already.
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

// close closes all files. It joins their errors, which may be about an earlier write.
func (f *files) close() error {
	var faults []error
	for _, file := range f.byName {
		if err := file.Close(); err != nil {
			faults = append(faults, fmt.Errorf("close span file: %w", err))
		}
	}
	return errors.Join(faults...)
}

// naming chooses the file for a span. Its fields are the parts of names that do not
// depend on the span.
type naming struct {
	// node is the address of the machine, or empty if it is unknown.
	node string
	// hostPID is the id of the host process, which has started the plugin.
	hostPID int
}

// file returns the name of a span's file. The name begins with replica_APP_DEPLOYMENT_ID
// for a span inside of a replica, with proxy_NODE for another span of a request, and with
// SERVICE_INSTANCE for any other span.
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

// text returns the value of an attribute as text, or "" if ok is false. Its arguments are
// the results of Attribute.
func text(value attribute.Value, ok bool) string {
	if !ok {
		return ""
	}
	return value.String()
}

// maxStem bounds the length in bytes of a file's name without its ending, because file
// systems allow 255 bytes.
const maxStem = 200

// fileName joins the parts of a name by underscores, as Ray does, and adds the ending. It
// replaces characters that are unsafe in file names by underscores.
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
