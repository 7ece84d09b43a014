package plugintest

import (
	"bytes"
	"context"
	"fmt"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// withUnknownFields adds the unknown field to every message of a request.
func withUnknownFields(request *coltracepb.ExportTraceServiceRequest) {
	eachMessage(request.ProtoReflect(), "", func(_ string, m protoreflect.Message) { m.SetUnknown(unknownField) })
}

// eachMessage calls f for a message and all within it, with their names.
func eachMessage(m protoreflect.Message, path string, f func(path string, m protoreflect.Message)) {
	f(path+string(m.Descriptor().Name()), m)
	path += string(m.Descriptor().Name()) + "."
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap():
		case field.IsList():
			for i := range value.List().Len() {
				eachMessage(value.List().Get(i).Message(), path, f)
			}
		default:
			eachMessage(value.Message(), path, f)
		}
		return true
	})
}

func checkUnknownFields(ctx context.Context, t *trial) error {
	s, err := t.ready(ctx, how{})
	if err != nil {
		return err
	}
	b := t.numbers.batch(2)
	request := b.request()
	withUnknownFields(request)
	b.set(request)
	tapped, inProcess := s.plugin.(*inner)
	before := 0
	if inProcess {
		before = len(tapped.tap.seen())
	}
	answer, err := s.export(ctx, b)
	if err != nil {
		return err
	}
	if !answer.Delivered() {
		return fmt.Errorf("answered %v, want OK: hosts and SDKs are newer than plugins", answer)
	}
	if !inProcess || answer.filtered() > 0 {
		return nil
	}
	for _, encoded := range tapped.tap.seen()[before:] {
		if err := keepsUnknownFields(encoded); err != nil {
			return err
		}
	}
	return nil
}

// keepsUnknownFields looks for the unknown field in all that the suite has put
// it into; what a processor has added need not have it.
func keepsUnknownFields(encoded []byte) error {
	var data tracepb.TracesData
	if err := proto.Unmarshal(encoded, &data); err != nil {
		return fmt.Errorf("what reached the exporter: %w", err)
	}
	kept := map[string]int{}
	eachMessage(data.ProtoReflect(), "", func(path string, m protoreflect.Message) {
		if bytes.Contains(m.GetUnknown(), unknownField) {
			kept[path]++
		}
	})
	// Attributes may be replaced, with all that was in them.
	const inResource = "TracesData.ResourceSpans."
	const inSpan = inResource + "ScopeSpans.Span"
	for _, path := range []string{
		"TracesData", inResource + "Resource", inResource + "ScopeSpans", inResource + "ScopeSpans.InstrumentationScope",
		inSpan, inSpan + ".Event", inSpan + ".Link",
	} {
		if kept[path] == 0 {
			return fmt.Errorf("a field of %s that OTLP does not have yet does not reach the exporter: a processor has lost it", path)
		}
	}
	return nil
}
