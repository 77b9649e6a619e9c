package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/semel-dev/semel/driver/redeliver"
)

// member is the queue's membership in the group: one goroutine polls, one commits.
type member struct {
	q      *Queue
	client *kgo.Client
	end    context.CancelFunc // of the client: without leaving the group
	stop   context.CancelFunc // of the goroutines
	wg     sync.WaitGroup
	hungry chan struct{} // Receive took messages
	dirty  chan struct{} // messages were settled
	commit sync.Mutex    // positions are committed in the order in which they are read
}

// join makes the member at the first Receive. The client joins in the background.
func (q *Queue) join() (*member, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errors.New("kafka: the queue is closed")
	}
	if q.member != nil {
		return q.member, nil
	}
	m := &member{q: q, hungry: make(chan struct{}, 1), dirty: make(chan struct{}, 1)}
	life, end := context.WithCancel(context.Background())
	opts := append(q.o.common(), q.o.Client...)
	opts = append(opts, kgo.WithContext(life), kgo.ConsumerGroup(q.o.Group), kgo.ConsumeTopics(q.topic), kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.OnPartitionsRevoked(m.revoked), kgo.OnPartitionsLost(m.lost))
	client, err := kgo.NewClient(opts...)
	if err != nil {
		end()
		return nil, fmt.Errorf("kafka: receive from %s: Options.Client: %w", q.name, err)
	}
	ctx, stop := context.WithCancel(life)
	m.client, m.end, m.stop, q.member = client, end, stop, m
	m.wg.Go(func() { m.polls(ctx) })
	m.wg.Go(func() { m.commits(ctx) })
	return m, nil
}

// close leaves the group; the positions are committed when the partitions are revoked. The client does not leave while the group
// rebalances, which lasts until each member has joined again, or the session of one that died has ended. Then close removes the
// member from the group by its ID, without a commit. What was settled since the last commit is delivered again and replayed, so a
// failure is logged, and is no error of Close.
func (m *member) close() {
	m.stop()
	m.wg.Wait()
	m.client.AllowRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), min(leaving, m.q.o.CallTimeout))
	defer cancel()
	err := m.client.LeaveGroupContext(ctx)
	id, _ := m.client.GroupMetadata()
	m.end()
	if errors.Is(err, context.DeadlineExceeded) {
		err = m.remove(id)
	}
	if err != nil {
		m.q.o.Logger.Warn("kafka_leave_failed: the group waits for the end of the session", "queue", m.q.name, "err", err)
	}
	m.client.CloseAllowingRebalance()
}

// remove removes the member from its group. A static member stays: its ID keeps its partitions until it comes again.
func (m *member) remove(id string) error {
	if id == "" || m.client.OptValue(kgo.InstanceID) != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.q.o.CallTimeout)
	defer cancel()
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.q.o.Group, id
	req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: id}}
	res, err := req.RequestWith(ctx, m.q.client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(res.ErrorCode)
}

// expelled reports that the group does not know the member any more: another one has its partitions.
func expelled(err error) bool {
	return errors.Is(err, kerr.UnknownMemberID) || errors.Is(err, kerr.IllegalGeneration) || errors.Is(err, kerr.FencedMemberEpoch)
}

// polls takes messages from the client whenever few are left for Receive. While it handles them the group does not rebalance.
func (m *member) polls(ctx context.Context) {
	for m.wanted(ctx) {
		fetches := m.client.PollRecords(ctx, pollMax)
		failed := m.q.arrive(m, fetches)
		m.client.AllowRebalance()
		if failed {
			_ = redeliver.Wait(ctx, time.Second, nil)
		}
	}
}

// wanted waits until fewer than pollMax messages are ready. It returns false when ctx ends.
func (m *member) wanted(ctx context.Context) bool {
	for {
		m.q.mu.Lock()
		few := len(m.q.ready) < pollMax
		m.q.mu.Unlock()
		if ctx.Err() != nil || few {
			return ctx.Err() == nil
		}
		select {
		case <-m.hungry:
		case <-ctx.Done():
		}
	}
}

// arrive registers what a poll returned, and reports whether it returned an error.
func (q *Queue) arrive(m *member, fetches kgo.Fetches) (failed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member != m {
		return false // Purge ended the membership, and dropped its messages
	}
	fetches.EachError(func(_ string, partition int32, err error) {
		if errors.Is(err, context.Canceled) || errors.Is(err, kgo.ErrClientClosed) {
			return
		}
		loss := (*kgo.ErrDataLoss)(nil)
		switch {
		case errors.As(err, &loss):
			q.o.Logger.Error("kafka_data_loss: the log lost messages, and new ones have their offsets", "queue", q.name, "partition", partition, "err", err)
			q.drop(partition)
		case expelled(err):
			q.o.Logger.Warn("kafka_expelled: the session ended before a heartbeat came; the client joins the group again", "queue", q.name, "err", err)
		default:
			failed, q.failed = true, q.explain("receive from", err)
		}
	})
	fetches.EachRecord(func(in *kgo.Record) {
		p := q.parts[in.Partition]
		if p == nil {
			p = newPart(in.Partition, in.Offset)
			q.parts[in.Partition] = p
		}
		switch {
		case in.Offset < p.next: // of before a purge
		case in.Attrs.IsControl():
			p.skip(in.Offset, in.LeaderEpoch)
		default:
			if r := q.unpack(in); p.add(r) {
				q.ready = append(q.ready, r)
			}
		}
	})
	if len(q.ready) > 0 || failed {
		q.wake.Signal()
	}
	m.regulate()
	m.kick()
	return failed
}

// regulate pauses partitions whose window is full, and resumes others. Queue.mu is held.
func (m *member) regulate() {
	for _, p := range m.q.parts {
		which := map[string][]int32{m.q.topic: {p.id}}
		if !p.paused && p.full(m.q.o.Window) {
			p.paused = true
			m.client.PauseFetchPartitions(which)
		} else if p.paused && p.slack(m.q.o.Window) {
			p.paused = false
			m.client.ResumeFetchPartitions(which)
		}
	}
}

// kick wakes the goroutine that commits.
func (m *member) kick() { poke(m.dirty) }

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// commits commits positions in the background. A failed commit is repeated.
func (m *member) commits(ctx context.Context) {
	for {
		select {
		case <-m.dirty:
		case <-ctx.Done():
			return
		}
		if err := m.commitNow(ctx, nil); err != nil && ctx.Err() == nil {
			m.q.o.Logger.Warn("commit_failed", "queue", m.q.name, "err", err)
			if errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition) { // it was deleted, or made anew
				m.q.mu.Lock()
				m.q.failed = m.q.explain("commit the position of", err)
				m.q.wake.Signal()
				m.q.mu.Unlock()
			}
			_ = redeliver.Wait(ctx, 500*time.Millisecond, nil)
			m.kick()
		}
		m.q.mu.Lock()
		m.regulate()
		m.q.mu.Unlock()
		_ = redeliver.Wait(ctx, gather, nil)
	}
}

// commitNow commits the positions of parts (nil: of all that are assigned) that the broker does not have.
func (m *member) commitNow(ctx context.Context, parts []*part) error {
	m.commit.Lock()
	defer m.commit.Unlock()
	ctx, cancel := context.WithTimeout(ctx, m.q.o.CallTimeout)
	defer cancel()
	type done struct {
		p  *part
		to kgo.EpochOffset
		n  int
	}
	var todo []done
	offsets := map[int32]kgo.EpochOffset{}
	m.q.mu.Lock()
	if parts == nil {
		for _, p := range m.q.parts {
			parts = append(parts, p)
		}
	}
	for _, p := range parts {
		if p.low.Offset > p.committed {
			todo, offsets[p.id] = append(todo, done{p, p.low, p.uncommitted}), p.low
		}
	}
	m.q.mu.Unlock()
	if len(todo) == 0 {
		return nil
	}
	failed := map[int32]error{}
	var err error
	m.client.CommitOffsetsSync(ctx, map[string]map[int32]kgo.EpochOffset{m.q.topic: offsets},
		func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, res *kmsg.OffsetCommitResponse, e error) {
			if err = e; e == nil {
				failed = refused(res)
			}
		})
	if err != nil {
		return err
	}
	m.q.mu.Lock()
	defer m.q.mu.Unlock()
	for _, d := range todo {
		if err = errors.Join(err, failed[d.p.id]); failed[d.p.id] == nil {
			d.p.committed = d.to.Offset
			d.p.uncommitted -= d.n
		}
	}
	return err
}

// refused are the partitions whose position was not accepted.
func refused(res *kmsg.OffsetCommitResponse) map[int32]error {
	failed := map[int32]error{}
	for i := range res.Topics {
		for _, p := range res.Topics[i].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				failed[p.Partition] = fmt.Errorf("partition %d: %w", p.Partition, err)
			}
		}
	}
	return failed
}

// revoked commits what is settled of the partitions that go to other members, and forgets their messages.
func (m *member) revoked(ctx context.Context, _ *kgo.Client, gone map[string][]int32) {
	parts := m.forget(gone[m.q.topic])
	if len(parts) == 0 {
		return
	}
	if err := m.commitNow(ctx, parts); err != nil {
		m.q.o.Logger.Warn("commit_failed: settled messages of partitions that moved are redelivered and replayed", "queue", m.q.name, "err", err)
	}
}

// lost forgets the messages of partitions that others may have by now: their positions are not ours to commit.
func (m *member) lost(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
	m.forget(gone[m.q.topic])
}

func (m *member) forget(partitions []int32) (parts []*part) {
	q := m.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.member != m {
		return nil // the partitions may be those of a later membership
	}
	for _, id := range partitions {
		if p := q.drop(id); p != nil {
			parts = append(parts, p)
		}
	}
	return parts
}

// drop forgets the messages of a partition, and returns what it was; nil if nothing of it has arrived. Queue.mu is held.
func (q *Queue) drop(id int32) *part {
	p := q.parts[id]
	if p == nil {
		return nil
	}
	delete(q.parts, id)
	if p.paused && q.member != nil { // it may be assigned again
		q.member.client.ResumeFetchPartitions(map[string][]int32{q.topic: {id}})
	}
	p.revoked, p.open, p.waiting = true, nil, nil
	gone := func(r *record) bool { return r.part.revoked }
	q.ready = slices.DeleteFunc(q.ready, gone)
	q.delayed.Drop(gone)
	return p
}
