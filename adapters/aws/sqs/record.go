package sqs

import (
	"log/slog"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/semel-dev/semel/driver"
)

// Record is a message that somebody else received from SQS, read as [Queue.Receive] reads it.
type Record struct {
	Message driver.Message
	// Count is SQS's count of deliveries, 0 where it says none.
	Count int
	// Due is when the message may be handled, where its sender said so (a delay that SQS cannot do).
	Due time.Time
	// Piece: it is a piece of a large dead letter, which a redrive by the provider brought into the queue. Alone it is no
	// message.
	Piece bool
}

// ReadRecord reads a message of the queue of that name that came by another way than Receive: in a Lambda invocation. With
// unwrap it is taken out of its envelopes, see Options.Unwrap; a nil logger discards.
func ReadRecord(queue string, in *types.Message, unwrap bool, logger *slog.Logger) Record {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	q := &Queue{name: queue, o: Options{Unwrap: unwrap, Logger: logger}}
	r := Record{Message: q.unpack(in), Due: millis(deref(in.MessageAttributes[attrDue].StringValue))}
	_, r.Piece = readPart(in)
	r.Count, _ = strconv.Atoi(in.Attributes["ApproximateReceiveCount"])
	return r
}
