package serving

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"
)

// Codec turns arguments and results of calls to other processes into bytes, and back.
// [WithCodec] gives a deployment a codec. A Codec must be safe for concurrent use.
type Codec interface {
	// Name names the codec. Caller and callee must have codecs of the same name.
	Name() string
	// Check returns the reason for which values of type t cannot be encoded and decoded, or
	// nil. [New] calls it for each type that may be sent to another process.
	Check(t reflect.Type) error
	// Marshal returns the encoded value.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes data into the value that v points to. It must not keep data.
	Unmarshal(data []byte, v any) error
}

// WithCodec sets the codec for calls of the deployment from and to other processes. The
// default sends messages of Protocol Buffers as such, and other values as JSON.
// Within one process, values are passed as they are.
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

// checkJSON returns the reason for which a value of type t does not survive JSON, or nil.
// seen has the types that were checked, or are being checked.
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
// methods.
func jsonOwn(t reflect.Type, methods ...reflect.Type) bool {
	for _, m := range methods {
		if t.Implements(m) || reflect.PointerTo(t).Implements(m) {
			return true
		}
	}
	return false
}

func checkKey(t reflect.Type) error {
	switch k := t.Kind(); {
	case k == reflect.String, k >= reflect.Int && k <= reflect.Uint64, jsonOwn(t, typeTextUnmarshaler):
		return nil
	}
	return fmt.Errorf("%v is no key of a map in JSON", t)
}

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

// itemOf returns the type of the items of a stream of arguments, an iter.Seq[T] or an
// iter.Seq2[T, error].
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
