package dynamodb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

const (
	// auditAttr is the attribute with the audit log of a record.
	auditAttr = extraMark + "audit"
	// maxAuditLog bounds an audit log in bytes, so that no number of redrives fills the item. Beyond it the oldest entries
	// after the first auditHead are dropped: the beginning and the latest entries stay.
	maxAuditLog = 48 << 10
	auditHead   = 8
	// maxAuditText bounds the reason and the name in an entry. The record keeps the reason in full.
	maxAuditText = 2 << 10
)

// auditLine is an entry with its position among the entries of all records.
type auditLine struct {
	driver.AuditEntry
	seq int64
}

// auditSequence numbers the entries of this process by the clock, and in sequence while the clock stands still.
type auditSequence struct {
	mu   sync.Mutex
	last int64
}

func (o *auditSequence) next(now time.Time) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = max(o.last+1, now.UnixMicro())
	return o.last
}

// withEntry returns the row with one more entry in its audit log.
func (r row) withEntry(e *driver.AuditEntry, seq int64) row {
	var list []types.AttributeValue
	if old, ok := r.extra[auditAttr].(*types.AttributeValueMemberL); ok {
		list = old.Value
	}
	list = append(slices.Clone(list), encodeEntry(e, seq))
	for len(list) > auditHead+1 && sizeOf(&types.AttributeValueMemberL{Value: list}) > maxAuditLog {
		list = slices.Delete(list, auditHead, auditHead+1)
	}
	return r.withExtra(attrs{auditAttr: &types.AttributeValueMemberL{Value: list}})
}

func encodeEntry(e *driver.AuditEntry, seq int64) types.AttributeValue {
	m := attrs{
		"seq": number(seq), "at": number(e.At.UnixMicro()), "kind": number(e.Kind), "generation": number(e.Generation),
		"token": number(e.Token), "from": number(e.From), "to": number(e.To),
	}
	for name, v := range map[string]string{"by": e.By, "reason": e.Reason} {
		if len(v) > maxAuditText {
			v = strings.ToValidUTF8(v[:maxAuditText], "") + "…"
		}
		if v != "" {
			m[name] = text(v)
		}
	}
	for name, v := range map[string]bool{"verified": e.Verified, "renewed": e.Renewed} {
		if v {
			m[name] = &types.AttributeValueMemberBOOL{Value: true}
		}
	}
	return &types.AttributeValueMemberM{Value: m}
}

// auditLog reads the audit log of a record.
func (r *row) auditLog() (lines []auditLine, err error) {
	v, ok := r.extra[auditAttr]
	if !ok {
		return nil, nil
	}
	l, ok := v.(*types.AttributeValueMemberL)
	if !ok {
		return nil, fmt.Errorf("attribute %s %w", auditAttr, errType(v, "a list"))
	}
	for _, x := range l.Value {
		m, ok := x.(*types.AttributeValueMemberM)
		if !ok {
			return nil, fmt.Errorf("an entry of attribute %s %w", auditAttr, errType(x, "a map"))
		}
		f := fieldReader{m: m.Value}
		lines = append(lines, auditLine{seq: f.number("seq"), AuditEntry: driver.AuditEntry{
			At: time.UnixMicro(f.number("at")), By: f.text("by"), Kind: driver.OperationKind(f.number("kind")), Key: r.Key,
			Generation: uint32(f.number("generation")), Token: uint64(f.number("token")), //nolint:gosec // as they were written
			From: driver.State(f.number("from")), To: driver.State(f.number("to")), Reason: f.text("reason"), //nolint:gosec // as they were written
			Verified: f.flag("verified"), Renewed: f.flag("renewed"),
		}})
		if f.err != nil {
			return nil, fmt.Errorf("an entry of attribute %s: %w", auditAttr, f.err)
		}
	}
	return lines, nil
}

// Audit lists the audit log, oldest entry first. Without a key it reads the whole table, in pages. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	var lines []auditLine
	add := func(r *row) error {
		of, err := r.auditLog()
		if err != nil {
			return fmt.Errorf("key %q: %w", r.Key.Raw, err)
		}
		for _, l := range of {
			if !l.At.Before(f.Since) && (f.Consumer == "" || l.Key.Consumer == f.Consumer) {
				lines = append(lines, l)
			}
		}
		if f.Limit > 0 && len(lines) > 4*f.Limit+1000 {
			lines = latest(lines, f.Limit)
		}
		return nil
	}
	var err error
	if f.Key != (driver.Key{}) {
		var r row
		if r, err = s.find(ctx, f.Key); err == nil {
			err = add(&r)
		}
	} else {
		err = s.scan(ctx, scanned{consumer: f.Consumer, extra: auditAttr}, add)
	}
	if err != nil {
		return nil, fmt.Errorf("list the audit log: %w", err)
	}
	lines = latest(lines, f.Limit)
	out := make([]driver.AuditEntry, len(lines))
	for i := range lines {
		out[i] = lines[i].AuditEntry
	}
	return out, nil
}

// latest sorts lines and returns the last ones; limit 0 = all.
func latest(lines []auditLine, limit int) []auditLine {
	slices.SortStableFunc(lines, func(a, b auditLine) int { return cmp.Compare(a.seq, b.seq) })
	if limit > 0 && len(lines) > limit {
		return lines[len(lines)-limit:]
	}
	return lines
}

// Operate carries out an operator's action and adds it to the record's audit log, in one write. It erases no record
// (driver.ErrUnsupported). See [driver.Operator] and [driver.AuditLog].
func (s *Store) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	var o driver.Outcome
	if op.Kind == driver.Erase {
		// Tokens come from clocks: after the record is gone, a worker whose clock is behind could draw the same token again.
		return driver.Record{}, driver.Unknown, fmt.Errorf("erase key %q: %w on DynamoDB; Try: delete the item of table %s yourself when "+
			"it was not changed for more than %s (aws dynamodb delete-item)", op.Key.Raw, driver.ErrUnsupported, s.table,
			driver.DurationText(s.o.skew()))
	}
	c := &change{key: op.Key}
	op.Reason = clipped(op.Reason)
	if err := s.reload(ctx, c); err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, explain(err, "GetItem", s.table))
	}
	c.decide = func(r row, now time.Time) (after row, write bool, err error) {
		after = r
		after.Record, o, write = driver.DecideOperate(r.Record, op, now, s.drawn())
		if write {
			e := op.Entry(r.Record, after.Record, now)
			after = after.withEntry(&e, s.audits.next(now))
		}
		return after, write, nil
	}
	r, err := s.change(ctx, c)
	if err != nil {
		return driver.Record{}, driver.Unknown, fmt.Errorf("operate on key %q: %w", op.Key.Raw, err)
	}
	return r.Record, o, nil
}
