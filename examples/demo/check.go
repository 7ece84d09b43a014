package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// spansPerRequest is the number of spans of a request to hello.
const spansPerRequest = 4

// span is a span in the console plugin's JSON output.
type span struct {
	text string // the original JSON

	Name    string `json:"name"`
	Context struct {
		TraceID    string `json:"trace_id"`
		SpanID     string `json:"span_id"`
		TraceState string `json:"trace_state"`
	} `json:"context"`
	Kind     string    `json:"kind"`
	ParentID string    `json:"parent_id"` // null if there is none
	Start    time.Time `json:"start_time"`
	End      time.Time `json:"end_time"`
	Status   struct {
		Code        string `json:"status_code"`
		Description string `json:"description"`
	} `json:"status"`
	Attributes map[string]any `json:"attributes"`
	Events     []struct {
		Name       string         `json:"name"`
		Attributes map[string]any `json:"attributes"`
	} `json:"events"`
}

var _ printed = (*span)(nil)

func (s *span) requestID() string { return s.attribute("serve.request_id") }
func (s *span) spans() int        { return 1 }
func (s *span) String() string    { return fmt.Sprintf("span %q", s.Name) }

// attribute returns the text of an attribute, or "" if there is none.
func (s *span) attribute(key string) string {
	text, _ := s.Attributes[key].(string)
	return text
}

// readSpans decodes the spans in r and sends them to spans, until r ends.
func readSpans(r io.Reader, spans chan<- *span) error {
	decoder := json.NewDecoder(r)
	for {
		var text json.RawMessage
		err := decoder.Decode(&text)
		if errors.Is(err, io.EOF) {
			return nil
		}
		one := span{text: string(text)}
		if err == nil {
			err = json.Unmarshal(text, &one)
		}
		if err != nil {
			return fmt.Errorf("read the spans: %w", err)
		}
		spans <- &one
	}
}

// expect describes the expected properties of a span.
type expect struct {
	name, kind, status string
	// parent is the id of the caller's span. If empty, the parent is the previous span
	// in the chain, or none for the first span.
	parent string
	// trace and state come from the caller. Empty: not compared.
	trace, state string
	// exception is the message of the span's only exception. Empty: no exception.
	exception string
	// attributes is a subset of the span's attributes.
	attributes map[string]any
}

// check returns an error with all unexpected properties of span i of the chain.
func (e expect) check(order []*span, i int) error {
	if i >= len(order) {
		return fmt.Errorf("span %q is missing", e.name)
	}
	s, parent := order[i], e.parent
	if i > 0 {
		parent = order[i-1].Context.SpanID
	}
	wrong := []error{
		differs("name", s.Name, e.name),
		differs("kind", s.Kind, e.kind),
		differs("status", s.Status.Code, e.status),
		differs("parent", s.ParentID, parent),
		differs("trace", s.Context.TraceID, order[0].Context.TraceID),
		differs("exception", s.exception(), e.exception),
		s.checkRay(),
	}
	if e.trace != "" {
		wrong = append(wrong, differs("trace", s.Context.TraceID, e.trace))
	}
	if e.state != "" {
		key, value, _ := strings.Cut(e.state, "=")
		if !strings.Contains(s.Context.TraceState, key) || !strings.Contains(s.Context.TraceState, value) {
			wrong = append(wrong, differs("trace state", s.Context.TraceState, e.state))
		}
	}
	for key, want := range e.attributes {
		wrong = append(wrong, differs(key, s.Attributes[key], want))
	}
	if err := errors.Join(wrong...); err != nil {
		return fmt.Errorf("span %q: %w", e.name, err)
	}
	return nil
}

// checkRay returns an error if Ray's context is wrong: the ids of the request and the
// task, and of the actor and the job, which are suffixes of the task id.
func (s *span) checkRay() error {
	task := s.attribute("serve.task_id")
	if len(task) != 48 {
		return fmt.Errorf("serve.task_id is %q, want 48 digits", task)
	}
	return errors.Join(
		differs("ray.request_id", s.attribute("ray.request_id"), s.requestID()),
		differs("ray.task_id", s.attribute("ray.task_id"), task),
		differs("ray.actor_id", s.attribute("ray.actor_id"), task[16:]),
		differs("ray.job_id", s.attribute("ray.job_id"), task[40:]))
}

// exception returns the message of the span's exception event, or "".
func (s *span) exception() string {
	for _, event := range s.Events {
		if event.Name == "exception" {
			message, _ := event.Attributes["exception.message"].(string)
			return message
		}
	}
	return ""
}

func differs[T comparable](name string, got, want T) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s is %v, want %v", name, got, want)
}

// byParent sorts the spans of a request into a chain. The first span's parent is not in
// spans.
func byParent(spans []*span) ([]*span, error) {
	children := map[string][]*span{}
	ids := map[string]bool{}
	for _, s := range spans {
		ids[s.Context.SpanID] = true
	}
	for _, s := range spans {
		parent := s.ParentID
		if !ids[parent] {
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	var order []*span
	for at := ""; len(children[at]) > 0; at = order[len(order)-1].Context.SpanID {
		if n := len(children[at]); n > 1 {
			return nil, fmt.Errorf("%d spans have the parent %q, want a chain", n, at)
		}
		order = append(order, children[at][0])
	}
	if len(order) != len(spans) {
		return nil, fmt.Errorf("%d of %d spans are not in the chain", len(spans)-len(order), len(spans))
	}
	return order, nil
}
