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
	// trailName is the attribute of a record with the operators' trail.
	trailName = extraMark + "trail"
	// maxTrail bounds a trail in bytes, so that no number of redrives fills the item. Beyond it the entries behind the first
	// trailHead go: how it began and what happened last stays.
	maxTrail  = 48 << 10
	trailHead = 8
	// maxTrailText bounds reason and name of an entry; the record keeps the reason in full.
	maxTrailText = 2 << 10
)

// auditLine is an entry with its place among those of all records.
type auditLine struct {
	driver.AuditEntry
	seq int64
}

// trailOrder numbers the entries of this process: by the clock, and behind each other when the clock stands still.
type trailOrder struct {
	mu   sync.Mutex
	last int64
}

func (o *trailOrder) next(now time.Time) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = max(o.last+1, now.UnixMicro())
	return o.last
}

// withEntry is the row with an entry more in its trail.
func (r row) withEntry(e *driver.AuditEntry, seq int64) row {
	var list []types.AttributeValue
	if old, ok := r.extra[trailName].(*types.AttributeValueMemberL); ok {
		list = old.Value
	}
	list = append(slices.Clone(list), encodeEntry(e, seq))
	for len(list) > trailHead+1 && sizeOf(&types.AttributeValueMemberL{Value: list}) > maxTrail {
		list = slices.Delete(list, trailHead, trailHead+1)
	}
	return r.withExtra(attrs{trailName: &types.AttributeValueMemberL{Value: list}})
}

func encodeEntry(e *driver.AuditEntry, seq int64) types.AttributeValue {
	m := attrs{
		"seq": number(seq), "at": number(e.At.UnixMicro()), "kind": number(e.Kind), "generation": number(e.Generation),
		"token": number(e.Token), "from": number(e.From), "to": number(e.To),
	}
	for name, v := range map[string]string{"by": e.By, "reason": e.Reason} {
		if len(v) > maxTrailText {
			v = strings.ToValidUTF8(v[:maxTrailText], "") + "…"
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

// trail reads the trail of a record.
func (r *row) trail() (lines []auditLine, err error) {
	v, ok := r.extra[trailName]
	if !ok {
		return nil, nil
	}
	l, ok := v.(*types.AttributeValueMemberL)
	if !ok {
		return nil, fmt.Errorf("attribute %s %w", trailName, errType(v, "a list"))
	}
	for _, x := range l.Value {
		m, ok := x.(*types.AttributeValueMemberM)
		if !ok {
			return nil, fmt.Errorf("an entry of attribute %s %w", trailName, errType(x, "a map"))
		}
		f := fieldReader{m: m.Value}
		lines = append(lines, auditLine{seq: f.number("seq"), AuditEntry: driver.AuditEntry{
			At: time.UnixMicro(f.number("at")), By: f.text("by"), Kind: driver.OperationKind(f.number("kind")), Key: r.Key,
			Generation: uint32(f.number("generation")), Token: uint64(f.number("token")), //nolint:gosec // as they were written
			From: driver.State(f.number("from")), To: driver.State(f.number("to")), Reason: f.text("reason"), //nolint:gosec // as they were written
			Verified: f.flag("verified"), Renewed: f.flag("renewed"),
		}})
		if f.err != nil {
			return nil, fmt.Errorf("an entry of attribute %s: %w", trailName, f.err)
		}
	}
	return lines, nil
}

// Audit lists the operators' trail, oldest first. Without a key it reads the whole table, in pages. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	var lines []auditLine
	add := func(r *row) error {
		of, err := r.trail()
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
		err = s.scan(ctx, scanned{consumer: f.Consumer, extra: trailName}, add)
	}
	if err != nil {
		return nil, fmt.Errorf("list the audit trail: %w", err)
	}
	lines = latest(lines, f.Limit)
	out := make([]driver.AuditEntry, len(lines))
	for i := range lines {
		out[i] = lines[i].AuditEntry
	}
	return out, nil
}

// latest sorts lines, and keeps the latest of them; limit 0 = all.
func latest(lines []auditLine, limit int) []auditLine {
	slices.SortStableFunc(lines, func(a, b auditLine) int { return cmp.Compare(a.seq, b.seq) })
	if limit > 0 && len(lines) > limit {
		return lines[len(lines)-limit:]
	}
	return lines
}
