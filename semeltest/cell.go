package semeltest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// Times of the cells. The long ones differ by more than slack, and no suite runs that long. So a time in a record or grant
// shows which rule set it, although the store has its own clock.
const (
	short = 30 * time.Millisecond // leases, retries and retentions that end before the next barrier
	brief = 3 * time.Second       // the same of which a hundred are longer than slack: an older version waits that many leases
	long  = 1 * time.Hour         // leases that do not end
	later = 2 * time.Hour         // the lease of the claim under test
	retry = 4 * time.Hour         // retries that are not due
	keep  = 24 * time.Hour        // retention
	slack = 290 * time.Second
)

// request is one operation on one key: one field is set.
type request struct {
	claim   *driver.Claim
	extend  *driver.Hold
	finish  *driver.Finish
	operate *driver.Operation
	insert  *driver.Work // with its claim
}

// step is one operation of a cell, or a barrier, which waits until everything short, or brief, has ended.
type step struct {
	make    func(c *cell) request
	barrier time.Duration // what a barrier waits for; 0 = it is none
	// checked: the record is compared afterwards, where the store shows it.
	checked bool
}

// cell is one key with its operations, and its record according to the decision table.
type cell struct {
	name   string
	key    driver.Key
	policy driver.Takeover
	fp     driver.Fingerprint
	keep   time.Duration
	steps  []step

	model driver.Record
	held  driver.Hold // the last that was acquired
}

// bench runs cells on one store.
type bench struct {
	StoreSetup
	t   testing.TB
	bad mismatches
	now time.Time // the model's clock: only differences count
	// longTerm is the period that is registered for the cells' consumer.
	longTerm time.Duration
	keys     int
}

func newBench(t testing.TB, s StoreSetup) *bench {
	return &bench{StoreSetup: s, t: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
}

func newNonce() (n driver.Nonce) {
	_, _ = rand.Read(n[:]) // never fails
	return n
}

// newCell makes a cell with its own key.
func (b *bench) newCell(name string) *cell {
	b.keys++
	c := &cell{
		name: name, key: driver.Key{Consumer: "suite", Tenant: "t", Raw: fmt.Sprintf("cell-%d", b.keys)}, keep: keep,
	}
	c.held = driver.Hold{Key: c.key, Generation: 1, Token: 7, Nonce: newNonce()}
	return c
}

// wait lets everything short end.
func (b *bench) wait() { b.waitFor(short) }

// waitFor lets everything end that lasts no longer than d.
func (b *bench) waitFor(d time.Duration) {
	d += short + b.Skew
	b.now = b.now.Add(d)
	if b.Advance != nil {
		b.Advance(d)
		return
	}
	time.Sleep(d)
}

// call bounds one call to the store.
func (b *bench) call() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.t.Context(), 2*time.Minute)
}

const cellBatch = 200

// sampled returns the cells to compare, the same ones in every run. They are drawn at random, because every n-th cell could
// have the same operation.
func (b *bench) sampled(all []*cell) (some []*cell) {
	if b.Sample <= 1 {
		return all
	}
	draw := mathrand.New(mathrand.NewPCG(1, uint64(b.Sample)))
	for _, c := range all {
		if draw.IntN(b.Sample) == 0 {
			some = append(some, c)
		}
	}
	return some
}

// run does the steps of all cells in rounds, in batches of one kind.
func (b *bench) run(cells []*cell) {
	for round := 0; ; round++ {
		var kinds [5][]*cell
		var requests [5][]request
		var checked []*cell
		barrier, left := time.Duration(0), false
		for _, c := range cells {
			if round >= len(c.steps) {
				continue
			}
			left = true
			s := c.steps[round]
			barrier = max(barrier, s.barrier)
			if s.make == nil {
				continue
			}
			q := s.make(c)
			k := q.kind()
			kinds[k], requests[k] = append(kinds[k], c), append(requests[k], q)
			if s.checked {
				checked = append(checked, c)
			}
		}
		if !left {
			return
		}
		for k := range kinds {
			for i := 0; i < len(kinds[k]); i += cellBatch {
				end := min(i+cellBatch, len(kinds[k]))
				b.do(kinds[k][i:end], requests[k][i:end])
			}
		}
		for _, c := range checked {
			b.inspect(c)
		}
		if barrier > 0 {
			b.waitFor(barrier)
		}
	}
}

func (q *request) kind() int {
	switch {
	case q.claim != nil:
		return 0
	case q.extend != nil:
		return 1
	case q.finish != nil:
		return 2
	case q.operate != nil:
		return 3
	}
	return 4
}

// do sends requests of one kind for different keys in one call, and compares the results with the table.
func (b *bench) do(cells []*cell, q []request) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	switch q[0].kind() {
	case 0:
		b.claims(ctx, cells, q)
	case 1:
		holds := make([]driver.Hold, len(q))
		for i := range q {
			holds[i] = *q[i].extend
		}
		out, err := b.Store.Extend(ctx, later, holds...)
		b.returned("Extend", len(out), len(q), err)
		for i, c := range cells {
			after, want := driver.DecideExtend(c.model, holds[i], later, b.now)
			b.outcome(c, "Extend", out[i], want)
			c.model = after
		}
	case 2:
		fs := make([]driver.Finish, len(q))
		for i := range q {
			fs[i] = *q[i].finish
		}
		out, err := b.Store.Finish(ctx, fs...)
		b.returned("Finish", len(out), len(q), err)
		for i, c := range cells {
			after, want, changed := driver.DecideFinish(c.model, fs[i], b.now)
			b.outcome(c, "Finish "+fs[i].Final.String(), out[i], want)
			if changed {
				c.model = after
			}
		}
	case 3:
		for i, c := range cells {
			b.operate(ctx, c, *q[i].operate)
		}
	case 4:
		b.inserts(ctx, cells, q)
	}
}

// inserts commits works that bring their claims.
func (b *bench) inserts(ctx context.Context, cells []*cell, q []request) {
	b.t.Helper()
	w := make([]driver.Work, len(q))
	for i := range q {
		w[i] = *q[i].insert
	}
	out, err := as[driver.Committer](b.Store).Commit(ctx, w...)
	b.returned("Commit", len(out), len(q), err)
	for i, c := range cells {
		// The stored token shows the number that the store drew; it must be greater than the last.
		r, _, err := as[driver.RecordInspector](b.Store).Record(ctx, c.key)
		if err != nil {
			b.t.Fatalf("%s: Record: %v", c.name, err)
		}
		after, want, changed := driver.DecideInsert(c.model, *w[i].Claim, w[i].Finish, b.now, r.Token)
		b.outcome(c, "Commit with its claim", out[i], want)
		if changed {
			c.model = after
		}
	}
}

func (b *bench) claims(ctx context.Context, cells []*cell, q []request) {
	b.t.Helper()
	cs := make([]driver.Claim, len(q))
	for i := range q {
		cs[i] = *q[i].claim
	}
	got, err := b.Store.Claim(ctx, cs...)
	b.returned("Claim", len(got), len(q), err)
	for i, c := range cells {
		// The granted token shows the number that the store drew; it must be greater than the last.
		after, want, changed := driver.DecideClaim(c.model, cs[i], b.now, got[i].Hold.Token)
		for _, d := range diffGrant(got[i], want) {
			b.bad.add("%s: Claim: %s", c.name, d)
		}
		if changed {
			c.model = after
		}
		if got[i].Verdict == driver.Acquired {
			c.held = got[i].Hold
		}
	}
}

func (b *bench) operate(ctx context.Context, c *cell, op driver.Operation) {
	b.t.Helper()
	rec, got, err := as[driver.Operator](b.Store).Operate(ctx, op)
	if op.Kind == driver.Erase && unsupported(err) {
		return
	}
	if err != nil {
		b.t.Fatalf("%s: Operate: %v", c.name, err)
	}
	after, want, changed := driver.DecideOperate(c.model, op, b.now, rec.Token)
	b.outcome(c, "Operate", got, want)
	if changed {
		c.model = after
	}
	for _, d := range diffRecord(rec, c.model) {
		b.bad.add("%s: record that Operate returned: %s", c.name, d)
	}
}

// inspect compares the stored record with the model.
func (b *bench) inspect(c *cell) {
	b.t.Helper()
	ins, ok := driver.As[driver.RecordInspector](b.Store)
	if !ok {
		return
	}
	ctx, cancel := b.call()
	defer cancel()
	got, found, err := ins.Record(ctx, c.key)
	if err != nil {
		b.t.Fatalf("%s: Record: %v", c.name, err)
	}
	if found != (c.model.State != driver.Absent) {
		b.bad.add("%s: record found = %v, the table has %v", c.name, found, c.model.State)
		return
	}
	for _, d := range diffRecord(got, c.model) {
		b.bad.add("%s: record: %s", c.name, d)
	}
}

// returned stops the case when a call failed as a whole, because nothing after it could be judged.
func (b *bench) returned(what string, got, want int, err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("%s of %d items: %v", what, want, err)
	}
	if got != want {
		b.t.Fatalf("%s of %d items returned %d: results are positional", what, want, got)
	}
}

func (b *bench) outcome(c *cell, what string, got, want driver.Outcome) {
	if got != want {
		b.bad.add("%s: %s returned %v, the table says %v", c.name, what, got, want)
	}
}

// own marks texts that the suite made up: a store must return them unchanged. It may word the table's own reasons
// differently.
const own = "suite: "

func sameReason(got, want string) bool {
	if want == "" || strings.HasPrefix(want, own) {
		return got == want
	}
	return got != "" && !strings.HasPrefix(got, own)
}

type differ []string

func (d *differ) eq(name string, same bool, got, want any) {
	if !same {
		*d = append(*d, fmt.Sprintf("%s is %v, the table says %v", name, got, want))
	}
}

func near(a, b time.Duration) bool { return (a - b).Abs() <= slack }

func diffGrant(got, want driver.Grant) differ {
	var d differ
	if got.Err != nil {
		return differ{"error " + got.Err.Error()}
	}
	d.eq("verdict", got.Verdict == want.Verdict, got.Verdict, want.Verdict)
	d.eq("hold", got.Hold == want.Hold, got.Hold, want.Hold)
	d.eq("attempt", got.Attempt == want.Attempt, got.Attempt, want.Attempt)
	d.eq("failures", got.Failures == want.Failures, got.Failures, want.Failures)
	d.eq("takeovers", got.Takeovers == want.Takeovers, got.Takeovers, want.Takeovers)
	d.eq("unknown", got.Unknown == want.Unknown, got.Unknown, want.Unknown)
	d.eq("uncertainty", got.Uncertainty == want.Uncertainty, got.Uncertainty, want.Uncertainty)
	d.eq("takeover", got.Takeover == want.Takeover, got.Takeover, want.Takeover)
	d.eq("wait", near(got.Wait, want.Wait), got.Wait, want.Wait)
	if want.Verdict == driver.Replay {
		d.eq("result", bytes.Equal(got.Result, want.Result), got.Result, want.Result)
	}
	d.eq("other payload", got.OtherPayload == want.OtherPayload, got.OtherPayload, want.OtherPayload)
	d.eq("reason", sameReason(got.Reason, want.Reason), got.Reason, want.Reason)
	d.eq("disposed", got.Disposed == want.Disposed, got.Disposed, want.Disposed)
	d.eq("redelivery", got.Redelivery == want.Redelivery, got.Redelivery, want.Redelivery)
	d.eq("gap", got.Gap == want.Gap, got.Gap, want.Gap)
	d.eq("created", got.Created.IsZero() == want.Created.IsZero(), got.Created, want.Created)
	return d
}

func diffRecord(got, want driver.Record) differ {
	var d differ
	d.eq("state", got.State == want.State, got.State, want.State)
	d.eq("state before the expiry", got.Ended == want.Ended, got.Ended, want.Ended)
	d.eq("hold", got.Hold() == want.Hold(), got.Hold(), want.Hold())
	d.eq("spent", got.Spent == want.Spent, got.Spent, want.Spent)
	d.eq("takeover", got.Takeover == want.Takeover, got.Takeover, want.Takeover)
	d.eq("attempt", got.Attempt == want.Attempt, got.Attempt, want.Attempt)
	d.eq("failures", got.Failures == want.Failures, got.Failures, want.Failures)
	d.eq("takeovers", got.Takeovers == want.Takeovers, got.Takeovers, want.Takeovers)
	d.eq("unknown", got.Unknown == want.Unknown, got.Unknown, want.Unknown)
	d.eq("uncertainty", got.Uncertainty == want.Uncertainty, got.Uncertainty, want.Uncertainty)
	d.eq("fingerprint", got.Fingerprint == want.Fingerprint, got.Fingerprint, want.Fingerprint)
	d.eq("body digest", got.BodyDigest == want.BodyDigest, got.BodyDigest, want.BodyDigest)
	gotMark, wantMark := driver.AppendWatermark(nil, &got.Watermark), driver.AppendWatermark(nil, &want.Watermark)
	d.eq("watermark", bytes.Equal(gotMark, wantMark), got.Watermark, want.Watermark)
	d.eq("reason", sameReason(got.Reason, want.Reason), got.Reason, want.Reason)
	d.eq("disposed", got.Disposed == want.Disposed, got.Disposed, want.Disposed)
	d.eq("deliveries", slices.Equal(got.Deliveries, want.Deliveries), got.Deliveries, want.Deliveries)
	if want.State == driver.Absent {
		return d
	}
	d.time("retain_until", got.RetainUntil, got.CreatedAt, want.RetainUntil, want.CreatedAt)
	d.time("updated_at", got.UpdatedAt, got.CreatedAt, want.UpdatedAt, want.CreatedAt)
	switch want.State { // a field that counts in one state may be kept or cleared in the others
	case driver.InProgress:
		d.eq("lease", got.Lease == want.Lease, got.Lease, want.Lease)
		d.eq("beat", got.Beat == want.Beat, got.Beat, want.Beat)
		d.time("lease_until", got.LeaseUntil, got.CreatedAt, want.LeaseUntil, want.CreatedAt)
	case driver.Released:
		d.time("retry_at", got.RetryAt, got.CreatedAt, want.RetryAt, want.CreatedAt)
	case driver.Completed:
		d.eq("result", bytes.Equal(got.Result, want.Result), got.Result, want.Result)
		d.time("completed_at", got.CompletedAt, got.CreatedAt, want.CompletedAt, want.CreatedAt)
	case driver.Expired:
		d.eq("result", len(got.Result) == 0, got.Result, "empty")
	}
	return d
}

// time compares the distances from the record's beginning, because the clocks differ.
func (d *differ) time(name string, got, gotFrom, want, wantFrom time.Time) {
	if got.IsZero() != want.IsZero() {
		d.eq(name, false, got, want)
		return
	}
	if !want.IsZero() {
		g, w := got.Sub(gotFrom), want.Sub(wantFrom)
		d.eq(name+" after created_at", near(g, w), g, w)
	}
}

// unsupported reports whether err is driver.ErrUnsupported.
func unsupported(err error) bool { return errors.Is(err, driver.ErrUnsupported) }
