// Package field lists the field numbers of OTLP's trace messages, in one block for each
// message. Code that reads and writes the bytes without generated code uses them. The package
// has only this file.
//
// Source: https://github.com/open-telemetry/opentelemetry-proto, version 1.
package field

// Field numbers. The first part of a name is the name of the message.
const (
	RequestResourceSpans = 1

	ResponsePartialSuccess = 1

	PartialSuccessRejectedSpans = 1
	PartialSuccessErrorMessage  = 2

	ResourceSpansResource   = 1
	ResourceSpansScopeSpans = 2
	ResourceSpansSchemaURL  = 3

	ScopeSpansScope     = 1
	ScopeSpansSpans     = 2
	ScopeSpansSchemaURL = 3

	ResourceAttributes        = 1
	ResourceDroppedAttributes = 2

	ScopeName              = 1
	ScopeVersion           = 2
	ScopeAttributes        = 3
	ScopeDroppedAttributes = 4

	SpanTraceID           = 1
	SpanSpanID            = 2
	SpanTraceState        = 3
	SpanParentID          = 4
	SpanName              = 5
	SpanKind              = 6
	SpanStart             = 7
	SpanEnd               = 8
	SpanAttributes        = 9
	SpanDroppedAttributes = 10
	SpanEvents            = 11
	SpanDroppedEvents     = 12
	SpanLinks             = 13
	SpanDroppedLinks      = 14
	SpanStatus            = 15
	SpanFlags             = 16

	StatusMessage = 2
	StatusCode    = 3

	EventTime              = 1
	EventName              = 2
	EventAttributes        = 3
	EventDroppedAttributes = 4

	LinkTraceID           = 1
	LinkSpanID            = 2
	LinkTraceState        = 3
	LinkAttributes        = 4
	LinkDroppedAttributes = 5
	LinkFlags             = 6

	KeyValueKey   = 1
	KeyValueValue = 2

	AnyString      = 1
	AnyBool        = 2
	AnyInt         = 3
	AnyDouble      = 4
	AnyArray       = 5
	AnyKeyValues   = 6
	AnyBytes       = 7
	AnyStringIndex = 8 // used only in OTLP's profiles: an index into a table that traces do not have

	ListValues = 1 // field of ArrayValue and of KeyValueList
)
