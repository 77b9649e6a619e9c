package redis

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// The side of a record is a hash that goes with it: journals of steps (fields j…), the operators' audit log (a…), and the
// newest duplicates (n, d0 to d15). Values are JSON.

func (s *Store) sideName(i *item) string {
	return s.slot(s.shard(i)) + "x:" + string(i.hash[:hashSize])
}

// side reads the fields of a record's side that begin so, sorted by their names.
func (s *Store) side(ctx context.Context, i *item, prefix string) (fields []string, values map[string]string, err error) {
	values, err = s.client.HGetAll(ctx, s.sideName(i)).Result()
	if err != nil {
		return nil, nil, explain(err)
	}
	for name := range values {
		if strings.HasPrefix(name, prefix) {
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	return fields, values, nil
}

// asJSON never fails: what it is given has only plain fields.
func asJSON(v any) []byte {
	b, _ := json.Marshal(v)
	return b
}

// binaryText is a text that JSON keeps byte by byte.
type binaryText = []byte

// auditLine is an entry of the audit log with what JSON would change.
type auditLine struct {
	driver.AuditEntry
	By, Reason            binaryText
	Consumer, Tenant, Raw binaryText
}

// auditField makes fields sort by time, and behind each other within a microsecond.
func (s *Store) auditField(now time.Time) []byte {
	b := binary.BigEndian.AppendUint64([]byte("a"), uint64(now.UnixMicro())) //nolint:gosec // after 1970
	return binary.BigEndian.AppendUint32(b, s.entries.Add(1))
}

func auditValue(e *driver.AuditEntry) []byte {
	l := auditLine{
		AuditEntry: *e, By: binaryText(e.By), Reason: binaryText(e.Reason), Consumer: binaryText(e.Key.Consumer),
		Tenant: binaryText(e.Key.Tenant), Raw: binaryText(e.Key.Raw),
	}
	l.AuditEntry.Key = driver.Key{}
	return asJSON(l)
}

// Audit lists the operators' audit log, oldest first. Without a key it reads the sides of all records. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	type line struct {
		driver.AuditEntry
		field string
	}
	var lines []line
	add := func(page []*item) error {
		for _, i := range page {
			fields, values, err := s.side(ctx, i, "a")
			if err != nil {
				return err
			}
			for _, name := range fields {
				var l auditLine
				if err := json.Unmarshal([]byte(values[name]), &l); err != nil {
					return fmt.Errorf("read an entry: %w", err)
				}
				e := l.AuditEntry
				e.By, e.Reason = string(l.By), string(l.Reason)
				e.Key = driver.Key{Consumer: string(l.Consumer), Tenant: string(l.Tenant), Raw: string(l.Raw)}
				if !e.At.Before(f.Since) && (f.Consumer == "" || f.Consumer == e.Key.Consumer) {
					lines = append(lines, line{e, name})
				}
			}
		}
		return nil
	}
	var err error
	if f.Key != (driver.Key{}) {
		err = add([]*item{newItem(&f.Key)})
	} else {
		err = s.scan(ctx, add)
	}
	if err != nil {
		return nil, fmt.Errorf("list the audit log: %w", err)
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.field, b.field) })
	if f.Limit > 0 && len(lines) > f.Limit {
		lines = lines[len(lines)-f.Limit:]
	}
	out := make([]driver.AuditEntry, len(lines))
	for i := range lines {
		out[i] = lines[i].AuditEntry
	}
	return out, nil
}

// stepLine is a step with what JSON would change.
type stepLine struct {
	driver.Step
	Name, Reason binaryText
}

// journal begins the fields of the journals of one epoch, run those of one run.
func journal(epoch uint32) []byte { return binary.BigEndian.AppendUint32([]byte("j"), epoch) }

func run(h *driver.Hold) []byte {
	return append(section(journal(h.Epoch), string(h.Version)), '/')
}

// Steps reads the journal of a run.
func (s *Store) Steps(ctx context.Context, h driver.Hold) ([]driver.Step, error) {
	steps, _, err := s.steps(ctx, newItem(&h.Key), &h)
	if err != nil {
		return nil, fmt.Errorf("steps of key %q: %w", h.Key.Raw, err)
	}
	return steps, nil
}

// steps reads a journal; old are the fields of the epoch's journals of other versions.
func (s *Store) steps(ctx context.Context, i *item, h *driver.Hold) (steps []driver.Step, old []string, err error) {
	fields, values, err := s.side(ctx, i, string(journal(h.Epoch)))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range fields {
		if !strings.HasPrefix(name, string(run(h))) {
			old = append(old, name)
			continue
		}
		var l stepLine
		if err := json.Unmarshal([]byte(values[name]), &l); err != nil {
			return nil, nil, fmt.Errorf("read a step: %w", err)
		}
		l.Step.Name, l.Step.Reason = string(l.Name), string(l.Reason)
		steps = append(steps, l.Step)
	}
	return steps, old, nil
}

// WriteSteps writes a journal. Every write changes the record's UpdatedAt, so that of two at a time one is decided again.
// Effects are not supported. See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (driver.Outcome, error) {
	for i := range w {
		if w[i].Effects != nil {
			return driver.Unknown, &driver.ItemError{Index: i, Err: fmt.Errorf("effects in Redis: %w", driver.ErrUnsupported)}
		}
	}
	for {
		o, again, err := s.writeSteps(ctx, &h, w)
		if err != nil {
			return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
		}
		if !again {
			return o, nil
		}
	}
}

func (s *Store) writeSteps(ctx context.Context, h *driver.Hold, w []driver.StepWrite) (o driver.Outcome, again bool, err error) {
	c := &change{item: newItem(&h.Key), once: true}
	s.read(ctx, c.item) // before the journal: who writes that changes the record
	rows, old, err := s.steps(ctx, c.item, h)
	if err != nil {
		return 0, false, errors.Join(err, c.err)
	}
	c.decide = func(r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool, more []any) {
		var put []driver.Step
		if put, _, o = driver.DecideSteps(r, rows, *h, w, now); o != driver.Applied || len(put) == 0 {
			return r, false, nil
		}
		for _, p := range put {
			field := binary.BigEndian.AppendUint32(bytes.Clone(run(h)), uint32(p.Seq)) //nolint:gosec // a count
			more = append(more, field, asJSON(stepLine{p, binaryText(p.Name), binaryText(p.Reason)}))
		}
		for _, name := range old {
			more = append(more, name, "")
		}
		if r.UpdatedAt = r.UpdatedAt.Add(time.Microsecond); now.After(r.UpdatedAt) {
			r.UpdatedAt = now
		}
		return r, true, more
	}
	s.swap(ctx, []*change{c})
	return o, c.lost, c.err
}

// duplicateLine is a duplicate with what JSON would change.
type duplicateLine struct {
	driver.Duplicate
	MessageID, Worker, Queue binaryText
}

// AddDuplicates appends duplicates of keys that have a record. See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	items := make([]*item, len(ds))
	for i, d := range ds {
		l := duplicateLine{d, binaryText(d.MessageID), binaryText(d.Worker), binaryText(d.Queue)}
		l.Key = driver.Key{} // it is the record's
		items[i] = newItem(&ds[i].Key)
		items[i].side, items[i].args = true, []any{asJSON(l)}
	}
	s.run(ctx, s.scripts.duplicates, items)
	for _, i := range items {
		if i.err != nil {
			return fmt.Errorf("add duplicates: %w", i.err)
		}
	}
	return nil
}

// Duplicates returns the duplicates of a key. See [driver.DuplicateLog].
func (s *Store) Duplicates(ctx context.Context, k driver.Key) (total int64, newest []driver.Duplicate, err error) {
	_, values, err := s.side(ctx, newItem(&k), "")
	if err != nil {
		return 0, nil, fmt.Errorf("list duplicates: %w", err)
	}
	if _, err := fmt.Sscan(cmp.Or(values["n"], "0"), &total); err != nil {
		return 0, nil, fmt.Errorf("list duplicates: their count %q is no number", values["n"])
	}
	for n := max(total-driver.MaxDuplicates, 0) + 1; n <= total; n++ {
		var l duplicateLine
		if err := json.Unmarshal([]byte(values[fmt.Sprint("d", n%driver.MaxDuplicates)]), &l); err != nil {
			return total, newest, fmt.Errorf("list duplicates: %w", err)
		}
		d := l.Duplicate
		d.Key, d.MessageID, d.Worker, d.Queue = k, string(l.MessageID), string(l.Worker), string(l.Queue)
		newest = append(newest, d)
	}
	return total, newest, nil
}
