// Package pywire converts spans from the compact form that the Python package sends to the bytes
// of an OTLP ExportTraceServiceRequest. The Python package does not send OTLP, because msgpack
// costs it a fraction of the CPU that protobuf objects cost.
//
// A request in the compact form consists of batches. Each batch is a msgpack array:
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
// Attributes are a map or nil. Ids are binary, texts are strings or nil, and numbers are
// integers. Flags, kinds, codes and times have the same values as in OTLP. The values of
// attributes are strings, integers, floats, booleans, binaries, nil, arrays and maps.
//
// The life of a request: Convert reads it once and writes it with an otlpwire.Writer,
// which writes from the end. Convert bounds depth, lists and the size of the result. It
// does not check ids and names: the host checks the result, as it checks every request.
//
// python/servetrace/encode.py writes the compact form. Open convert.go first.
package pywire
