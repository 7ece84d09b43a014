package spanpath

import (
	"context"
	"slices"

	"github.com/servetrace/servetrace/bench/internal/suite"
)

// Name is what the suite is called, and the role of its children.
const Name = "spanpath"

// Set gives all cases and claims of the suite.
func Set() suite.Set {
	var set suite.Set
	for _, s := range shapes {
		for _, r := range rows {
			if slices.Contains(s.rows, r.name) {
				set.Cases = append(set.Cases, newCase(s.name, r.name, r.doc, slices.Contains(s.quick, r.name), s.repeats))
			}
		}
	}
	set.Cases = append(set.Cases,
		newCase(shapeEncode, rowEncodeSDK, "what the SDK's OTLP exporters do: spans become messages, messages become bytes", true, 5),
		newCase(shapeEncode, rowEncode, "the host's encoder", true, 5))
	set.Claims = claims()
	return set
}

func newCase(shape, row, doc string, quick bool, repeats int) suite.Case {
	return suite.Case{
		Suite: Name, Shape: shape, Row: row, Doc: doc, Quick: quick, Repeats: repeats,
		Run: func(ctx context.Context, env *suite.Env) (sample suite.Sample, err error) {
			err = env.Child(ctx, Name, order{Row: row, Shape: shape, Bin: env.Bin, Sink: env.Sink.Addresses, Profile: env.Profile(Name, shape, row)}, &sample)
			return sample, err
		},
	}
}
