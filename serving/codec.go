package serving

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
)

// Codec encodes and decodes the arguments and results of calls by handle between processes.
// [WithCodec] sets the codec of a deployment. A Codec must be safe for concurrent use.
type Codec interface {
	// Name returns the name of the codec. A call fails if the caller's process and the other
	// process have codecs of different names.
	Name() string
	// Check returns an error if values of type t cannot be encoded and decoded. [New] calls it
	// for the type of each argument and result that may be sent to another process.
	Check(t reflect.Type) error
	// Marshal returns the encoding of v.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into the value that v points to. It must not keep data.
	Unmarshal(data []byte, v any) error
}

// WithCodec sets the codec for calls of the deployment that cross from one process to
// another. The default codec encodes a message of Protocol Buffers in the binary form, and
// any other value as JSON. A call within one process uses no codec.
func WithCodec(c Codec) DeploymentOption {
	return DeploymentOption{func(d *Deployment) { d.codec = c }}
}

// defaultCodec is the codec of deployments without [WithCodec].
type defaultCodec struct{}

// Name implements [Codec].
func (defaultCodec) Name() string { return "proto+json" }

// Marshal implements [Codec].
func (defaultCodec) Marshal(v any) ([]byte, error) {
	if m, is := v.(proto.Message); is {
		return proto.Marshal(m)
	}
	return json.Marshal(v)
}

// Unmarshal implements [Codec].
func (defaultCodec) Unmarshal(data []byte, v any) error {
	to := reflect.ValueOf(v).Elem()
	if m, is := to.Interface().(proto.Message); is {
		m = m.ProtoReflect().New().Interface()
		to.Set(reflect.ValueOf(m))
		return proto.Unmarshal(data, m)
	}
	return json.Unmarshal(data, v)
}

var (
	typeMessage         = reflect.TypeFor[proto.Message]()
	typeJSONMarshaler   = reflect.TypeFor[json.Marshaler]()
	typeJSONUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	typeTextMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	typeTextUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// Check implements [Codec].
func (defaultCodec) Check(t reflect.Type) error {
	if t.Implements(typeMessage) && t.Kind() == reflect.Pointer {
		return nil
	}
	return checkJSON(t, map[reflect.Type]bool{})
}

// checkJSON returns an error if a value of type t differs after it was encoded as JSON and
// decoded. seen has the types that were checked or are being checked, because types may be
// recursive.
func checkJSON(t reflect.Type, seen map[reflect.Type]bool) error {
	if seen[t] {
		return nil
	}
	seen[t] = true
	if reflect.PointerTo(t).Implements(typeMessage) || t.Implements(typeMessage) {
		return fmt.Errorf("%v is a message inside of a value that is JSON; make the message the whole value, or give the deployment a codec", t)
	}
	to, isTo := jsonOwn(t, typeJSONMarshaler, typeTextMarshaler), jsonOwn(t, typeJSONUnmarshaler, typeTextUnmarshaler)
	switch {
	case to && isTo:
		return nil
	case to:
		return fmt.Errorf("%v has a form of its own in JSON, and no method to read it: add UnmarshalJSON", t)
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer, reflect.Uintptr:
		return fmt.Errorf("%v has no form in JSON", t)
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Errorf("%v is an interface with methods, which cannot be read from JSON", t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return checkJSON(t.Elem(), seen)
	case reflect.Map:
		return errors.Join(checkKey(t.Key()), checkJSON(t.Elem(), seen))
	case reflect.Struct:
		return checkStruct(t, seen)
	}
	return nil
}

// jsonOwn reports whether t, or a pointer to t, implements one of the interfaces in
// methods, such as json.Marshaler. Such a type has its own form in JSON.
func jsonOwn(t reflect.Type, methods ...reflect.Type) bool {
	for _, m := range methods {
		if t.Implements(m) || reflect.PointerTo(t).Implements(m) {
			return true
		}
	}
	return false
}

// checkKey returns an error if a map with keys of type t has no form in JSON.
func checkKey(t reflect.Type) error {
	switch k := t.Kind(); {
	case k == reflect.String, k >= reflect.Int && k <= reflect.Uint64, jsonOwn(t, typeTextUnmarshaler):
		return nil
	}
	return fmt.Errorf("%v is no key of a map in JSON", t)
}

// checkStruct is checkJSON for a struct type. It checks the fields that JSON includes.
func checkStruct(t reflect.Type, seen map[reflect.Type]bool) error {
	var faults faults
	sent := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Tag.Get("json") == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		sent++
		if err := checkJSON(f.Type, seen); err != nil {
			faults.add("field %s of %v: %w", f.Name, t, err)
		}
	}
	if sent == 0 && t.NumField() > 0 {
		faults.add("%v has no exported field, so nothing of it has a form in JSON", t)
	}
	return errors.Join(faults...)
}

// itemOf returns the type T of the items if t, the type of an argument, is an iter.Seq[T] or
// an iter.Seq2[T, error]. The items of such an argument are sent one by one, as a stream.
func itemOf(t reflect.Type) (item reflect.Type, is bool) {
	switch {
	case t.Kind() != reflect.Func:
		return nil, false
	case t.CanSeq2() && t.In(0).In(1) == typeError:
		return t.In(0).In(0), true
	case t.CanSeq():
		return t.In(0).In(0), true
	}
	return nil, false
}

var typeError = reflect.TypeFor[error]()
