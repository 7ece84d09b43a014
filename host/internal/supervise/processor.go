package supervise

import (
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/servetrace/servetrace/host/internal/pipeline"
	"github.com/servetrace/servetrace/internal/wire"
)

// processRequest returns the buffers of a ProcessRequest for a batch: a head of a few
// bytes, and then the buffers of the batch.
func processRequest(it *pipeline.Item, batch mem.BufferSlice) mem.BufferSlice {
	head := wire.ProcessHead(wire.RequestBatch, len(it.Batch.Bytes()))
	return append(mem.BufferSlice{mem.SliceBuffer(head)}, batch...)
}

// mostAnswerBytes returns the number of bytes above which an answer of the plugin is
// not read.
func (s *sender) mostAnswerBytes() int {
	if s.x.Entry.Processor {
		return s.lane.MostResultBytes()
	}
	return maxAnswerBytes
}

// readProcessed reads the OK answer of a processor to a batch. A result that cannot be
// used becomes a final error. tooLong is the error of gRPC if the message was too long
// to be read.
func (s *sender) readProcessed(it *pipeline.Item, response []byte, trailer metadata.MD, tooLong error) pipeline.Answer {
	ans, err := pipeline.Answer{}, tooLong
	if err == nil {
		ans, err = s.lane.ReadResult(it, response)
	}
	if err != nil {
		return pipeline.Answer{Err: &wire.Error{Code: pipeline.CodeUnread, Final: true, Err: fmt.Errorf("the result cannot be used: %w", err)}}
	}
	ans.Filtered, ans.Unread = wire.ReadFiltered(s.redactor.Texts(trailer.Get(wire.MetaFiltered)))
	return ans
}
