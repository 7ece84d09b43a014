// Package lent lets an exporter of this module send a batch out of the memory in
// which it arrived, which is then used for the next one: for a plugin that only
// passes batches on, memory that is taken anew for each, zeroed and collected, is
// a good part of what it costs.
//
// An exporter that implements [Exporter] is given batches so where no processor
// stands before it. Everybody else's memory is their own, for they may keep it.
//
// It does not decide who lends: that is pluginsdk, in export.go.
package lent

import (
	"context"

	"google.golang.org/grpc/mem"
)

// Batch is an encoded request of OTLP as gRPC has received it, in pieces of any
// size. They must not be changed, and are gone when the call returns: who reads
// them for longer has a reference of its own (Ref), and frees it after the last
// read, or never, which leaves the memory to the collector.
type Batch struct{ Pieces mem.BufferSlice }

// Exporter is an exporter that can be lent a batch.
type Exporter interface {
	// ExportLent is pluginsdk.Exporter's Export.
	ExportLent(ctx context.Context, batch Batch) error
}
