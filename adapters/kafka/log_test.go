package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/semel-dev/semel/driver"
)

// TestFM75_PositionBehindTheEnd: the log is shorter than the group's position, as after an unclean election. The topic is read
// from its start: a message that is replayed is harmless, one that is skipped is lost.
func TestFM75_PositionBehindTheEnd(t *testing.T) {
	_, q := fake(t, 1, Options{})
	send(t, q, 0, 10)
	at := kadm.Offsets{}
	at.AddOffset(q.topic, 0, 1000, -1)
	if res, err := q.admin.CommitOffsets(t.Context(), q.o.Group, at); err != nil || res.Error() != nil {
		t.Fatal(err, res.Error())
	}
	ds := receive(t, q, 10)
	settle(t, q, driver.Ack, driver.Applied, ds...)
	empty(t, q)
}

// TestFM75_Truncation: the log loses its end under a member that holds messages of it. Their receipts are Lost, and new messages
// with the offsets of lost ones arrive.
func TestFM75_Truncation(t *testing.T) {
	_, q := fake(t, 1, Options{Logger: slog.New(slog.DiscardHandler)})
	send(t, q, 0, 10)
	old := receive(t, q, 10)
	var after kgo.Fetches
	p := kgo.FetchPartition{Partition: 0, Err: &kgo.ErrDataLoss{Topic: q.topic, Partition: 0, ConsumedTo: 10, ResetTo: 4}}
	for i := range 3 {
		p.Records = append(p.Records, &kgo.Record{Topic: q.topic, Offset: int64(4 + i), Value: []byte("new"),
			Headers: []kgo.RecordHeader{{Key: headerID, Value: fmt.Append(nil, "new-", i)}}})
	}
	after = append(after, kgo.Fetch{Topics: []kgo.FetchTopic{{Topic: q.topic, Partitions: []kgo.FetchPartition{p}}}})
	if q.arrive(q.member, after) {
		t.Error("data loss ends the receive")
	}
	settle(t, q, driver.Ack, driver.Lost, old[0], old[9])
	for i, d := range receive(t, q, 3) {
		if d.ID != fmt.Sprint("new-", i) || d.Position.Offset != int64(4+i) {
			t.Errorf("received %s at offset %d", d.ID, d.Position.Offset)
		}
		settle(t, q, driver.Ack, driver.Applied, d)
	}
}

// TestFM75_TopicMadeAnew: a topic that is made again counts its offsets from 0. Its messages are not delivered under the name of
// the old log: Receive returns an error until the queue is opened again.
func TestFM75_TopicMadeAnew(t *testing.T) {
	c, q := fake(t, 1, Options{})
	send(t, q, 0, 3)
	before := receive(t, q, 3)
	settle(t, q, driver.Ack, driver.Applied, before...)
	if err := errors.Join(c.DeleteTopic(q.topic), c.CreateTopic(q.topic, 1, nil)); err != nil {
		t.Fatal(err)
	}
	again := open(t, q.topic, q.o)
	send(t, again, 0, 3)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if ds, err := q.Receive(ctx, 3); err == nil || ctx.Err() != nil || !errors.Is(err, ErrNotFound) {
		t.Errorf("received %+v, %v of another log", ds, err)
	}
	if err := q.Close(); err != nil {
		t.Log(err)
	}
	for i, d := range receive(t, again, 3) {
		if d.Position.Log == before[i].Position.Log || d.Position.Offset != before[i].Position.Offset {
			t.Errorf("positions %v and %v", d.Position, before[i].Position)
		}
		settle(t, again, driver.Ack, driver.Applied, d)
	}
	empty(t, again)
}

// TestFM25_Transactions: messages of aborted transactions are not delivered, and the position passes them and the markers.
func TestFM25_Transactions(t *testing.T) {
	c, q := fake(t, 1, Options{})
	producer, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("tx"), kgo.DefaultProduceTopic(q.topic))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for tx := range 4 {
		if err := producer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			r := kgo.StringRecord("body")
			r.Headers = []kgo.RecordHeader{{Key: headerID, Value: fmt.Append(nil, tx, "-", i)}}
			if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := producer.EndTransaction(t.Context(), kgo.TransactionEndTry(tx%2 == 0)); err != nil {
			t.Fatal(err)
		}
	}
	peeked, err := q.Peek(t.Context(), 10)
	if err != nil || len(peeked) != 6 {
		t.Errorf("peek returned %d messages, %v, want 6", len(peeked), err)
	}
	ds := receive(t, q, 6)
	for _, d := range ds {
		if !strings.HasPrefix(d.ID, "0") && !strings.HasPrefix(d.ID, "2") {
			t.Errorf("message %s of an aborted transaction is delivered", d.ID)
		}
	}
	settle(t, q, driver.Ack, driver.Applied, ds...)
	committed(t, c, q, 0, 16) // 12 messages and 4 markers
	empty(t, q)
}

// TestFM25_CompactionGaps: offsets that compaction removed are passed.
func TestFM25_CompactionGaps(t *testing.T) {
	c, q := fake(t, 1, Options{})
	if err := c.CreateTopic("compacted", 1, map[string]string{"cleanup.policy": "compact", "segment.bytes": "200", "segment.ms": "1"}); err != nil {
		t.Fatal(err)
	}
	q = open(t, "compacted", q.o)
	if f := q.Features(); f.Durable || len(f.Caveats) != 1 || !strings.Contains(f.Caveats[0], "compacted") {
		t.Errorf("the queue reports a compacted topic as %+v", f)
	}
	for round := range 10 {
		for i := range 5 {
			if err := q.Send(t.Context(), driver.Message{ID: fmt.Sprint(round, "-", i), Group: fmt.Sprint(i % (1 + round%5))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.Compact()
	peeked, err := q.Peek(t.Context(), 50)
	if err != nil || len(peeked) >= 50 || len(peeked) < 5 {
		t.Fatalf("after the compaction %d messages of 50 are there (%v): it is no test of gaps", len(peeked), err)
	}
	for left := len(peeked); left > 0; {
		ds := receive(t, q, 1)
		settle(t, q, driver.Ack, driver.Applied, ds...)
		left -= len(ds)
	}
	committed(t, c, q, 0, 50)
	empty(t, q)
}

// TestFM60_PoisonAtTheHead: a message that is not settled holds the position of its partition. Other keys go on until the
// window is full, then the partition pauses, and other partitions go on. When it is settled, the rest arrives.
func TestFM60_PoisonAtTheHead(t *testing.T) {
	const window, n = 200, 4000
	_, q := fake(t, 2, Options{Window: window})
	send(t, q, 0, n)
	first := receive(t, q, 2)
	poison := first[0]
	p := poison.Position.Partition
	settle(t, q, driver.Ack, driver.Applied, first[1])
	got, others, total := 1, 0, int64(0)
	for _, id := range []int32{0, 1} {
		ends, err := q.offsets(t.Context(), q.admin.ListCommittedOffsets)
		if err != nil {
			t.Fatal(err)
		}
		if id != p {
			total = ends[id]
		}
	}
	if first[1].Position.Partition != p {
		others++
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	paused := func() (held int, paused bool) {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.parts[p].held(), q.parts[p].paused && len(q.ready) == 0
	}
	for {
		held, full := paused()
		if held > window+pollMax {
			t.Fatalf("%d messages are held, the window is %d", held, window)
		}
		if full && int64(others) == total {
			break
		}
		short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		ds, err := q.Receive(short, 100)
		stop()
		if err != nil && ctx.Err() != nil {
			t.Fatalf("the other partition stops after %d of %d messages", others, total)
		}
		for _, d := range ds {
			if got++; d.Position.Partition != p {
				others++
			}
		}
		settle(t, q, driver.Ack, driver.Applied, ds...)
	}
	if held, _ := paused(); got == n || held < window {
		t.Errorf("%d messages of %d were delivered, %d are held: the partition did not pause", got, n, held)
	}
	settle(t, q, driver.Ack, driver.Applied, poison)
	for ; got < n-1; got++ {
		settle(t, q, driver.Ack, driver.Applied, receive(t, q, 1)...)
	}
	empty(t, q)
}

// TestFM59_BinaryHeaders: headers that are no text survive both ways, and keys of any bytes are groups.
func TestFM59_BinaryHeaders(t *testing.T) {
	_, q := fake(t, 1, Options{})
	raw := &kgo.Record{Key: []byte{0xff, 0}, Value: []byte("v"), Headers: []kgo.RecordHeader{
		{Key: "n", Value: []byte{0xfe, 1}}, {Key: "t", Value: []byte("text")}, {Key: "t", Value: []byte("more")},
	}}
	if err := q.client.ProduceSync(t.Context(), raw).FirstErr(); err != nil {
		t.Fatal(err)
	}
	d := receive(t, q, 1)[0]
	if d.ID != d.Position.String() || d.Group != "\xff\x00" || d.Headers["n"] != "data:;base64,/gE=" || d.Headers["t"] != "text, more" {
		t.Errorf("received %+v", d.Message)
	}
	settle(t, q, driver.Ack, driver.Applied, d)
	if h := pack(&d.Message).Headers[1]; h.Key != "n" || string(h.Value) != "\xfe\x01" {
		t.Errorf("sent again as %q", h)
	}
}

// TestFM75_TruncationOfAPausedPartition: a partition that is paused when it loses its end goes on.
func TestFM75_TruncationOfAPausedPartition(t *testing.T) {
	_, q := fake(t, 1, Options{Window: 10, Logger: slog.New(slog.DiscardHandler)})
	send(t, q, 0, 50)
	receive(t, q, 50)
	waitFor(t, func() bool { q.mu.Lock(); defer q.mu.Unlock(); return q.parts[0].paused })
	loss := kgo.FetchPartition{Partition: 0, Err: &kgo.ErrDataLoss{Topic: q.topic, Partition: 0, ConsumedTo: 50, ResetTo: 50}}
	q.arrive(q.member, kgo.Fetches{{Topics: []kgo.FetchTopic{{Topic: q.topic, Partitions: []kgo.FetchPartition{loss}}}}})
	send(t, q, 50, 51)
	settle(t, q, driver.Ack, driver.Applied, receive(t, q, 1)...)
}

// TestFM17_RetentionByBytes: a topic that drops messages by size, whoever has read them, is not durable.
func TestFM17_RetentionByBytes(t *testing.T) {
	c, q := fake(t, 1, Options{})
	if err := c.CreateTopic("bounded", 1, map[string]string{"retention.bytes": "1048576"}); err != nil {
		t.Fatal(err)
	}
	f := open(t, "bounded", q.o).Features()
	if f.Durable || len(f.Caveats) != 1 || !strings.Contains(f.Caveats[0], "1048576 bytes") {
		t.Errorf("the queue reports a topic with retention.bytes as %+v", f)
	}
}
