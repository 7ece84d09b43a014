package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// spansOfRequest is how many spans a request to hello has.
const spansOfRequest = 4

// span is one span as the console plugin prints it.
type span struct {
	text string // as it was printed

	Name    string `json:"name"`
	Context struct {
		TraceID    string `json:"trace_id"`
		SpanID     string `json:"span_id"`
		TraceState string `json:"trace_state"`
	} `json:"context"`
	Kind     string    `json:"kind"`
	ParentID string    `json:"parent_id"` // null where there is none
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

// attribute is the text of an attribute, empty where there is none.
func (s *span) attribute(key string) string {
	text, _ := s.Attributes[key].(string)
	return text
}

// readSpans decodes spans from r until it ends.
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

// expect is what one span must be like.
type expect struct {
	name, kind, status string
	// parent is the id of a caller's span; empty: the span before in the chain,
	// or none for the first.
	parent string
	// trace and state are those of a caller; empty: not compared.
	trace, state string
	// exception is the message of its one exception; empty: it has none.
	exception string
	// attributes are among the span's.
	attributes map[string]any
}

// check says what of the i-th span of the chain is not as expected.
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

// checkRay says what is wrong with Ray's context: the ids of request and task,
// and those of actor and job that a task's id ends in.
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

// exception is the message of the span's exception event, or empty.
func (s *span) exception() string {
	for _, event := range s.Events {
		if event.Name == "exception" {
			message, _ := event.Attributes["exception.message"].(string)
			return message
		}
	}
	return ""
}

func differs[T comparable](what string, got, want T) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s is %v, want %v", what, got, want)
}

// byParent puts the spans of a request in a chain, the one whose parent is not
// among them first.
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
		return nil, fmt.Errorf("%d of %d spans are no chain", len(spans)-len(order), len(spans))
	}
	return order, nil
}
