// Package pywire converts the compact form in which the Python package sends spans to
// the bytes of an OTLP ExportTraceServiceRequest. For Python, msgpack costs a fraction
// of OTLP's protobuf objects.
//
// The compact form is one msgpack array after the other, each a batch:
//
//	batch = [1, [group…]]                                    the first member is the version
//	group = [attributes, schema URL, [scope…]]               a resource
//	scope = [name, version, schema URL, attributes, [span…]]
//	span  = [trace id, span id, parent's span id, flags, trace state, name, kind, start, end,
//	         attributes, status code, status message, [event…], [link…],
//	         dropped attributes, dropped events, dropped links]
//	event = [time, name, attributes, dropped attributes]
//	link  = [trace id, span id, trace state, flags, attributes, dropped attributes]
//
// Attributes are a map or nil. Ids are binary, other texts are strings or nil, numbers
// are integers. Flags, kinds, codes and times are OTLP's. The values of attributes are
// strings, integers, floats, booleans, binaries, nil, arrays and maps.
//
// The life of a request: Convert reads it once and writes it with an otlpwire.Writer,
// which writes from the end. Convert bounds depth, lists and the size of the result. It
// does not check ids and names: the host checks the result, as it checks every request.
//
// The other end is python/servetrace/encode.py. Open convert.go first.
package pywire
