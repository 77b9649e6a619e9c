package redis

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel/driver"
)

// The side of a record is a hash that goes with it: journals of steps (fields j…), the operators' audit log (a…), and the
// newest duplicates (n, d0 to d15). Values are JSON.

// side reads the fields of a record's side that begin with a prefix, sorted by their names.
func (s *Store) side(ctx context.Context, i *item, prefix string) (fields []string, values map[string]string, err error) {
	values, err = s.client.HGetAll(ctx, s.name("x", i)).Result()
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

// encodeRow makes the JSON of a struct. Its texts may be of any bytes: those that JSON does not keep become a zero byte and
// base64.
func encodeRow[T any](row T) []byte {
	eachText(reflect.ValueOf(&row).Elem(), func(s string) string {
		if utf8.ValidString(s) && !strings.HasPrefix(s, "\x00") {
			return s
		}
		return "\x00" + base64.StdEncoding.EncodeToString([]byte(s))
	})
	b, _ := json.Marshal(row) // never fails: rows have plain fields
	return b
}

func decodeRow[T any](text string) (row T, err error) {
	err = json.Unmarshal([]byte(text), &row)
	eachText(reflect.ValueOf(&row).Elem(), func(s string) string {
		encoded, ok := strings.CutPrefix(s, "\x00")
		if !ok {
			return s
		}
		b, wrong := base64.StdEncoding.DecodeString(encoded)
		err = cmp.Or(err, wrong)
		return string(b)
	})
	return row, err
}

// eachText replaces the texts of a struct, those of the structs in it too.
func eachText(v reflect.Value, replace func(string) string) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(replace(f.String()))
		case reflect.Struct:
			eachText(f, replace)
		case reflect.Map: // of texts
			of := make(map[string]string, f.Len())
			for name, value := range f.Seq2() {
				of[replace(name.String())] = replace(value.String())
			}
			f.Set(reflect.ValueOf(of))
		default:
		}
	}
}

// auditField makes fields sort by time, and behind each other within a microsecond.
func (s *Store) auditField(now time.Time) []byte {
	b := binary.BigEndian.AppendUint64([]byte("a"), uint64(now.UnixMicro())) //nolint:gosec // after 1970
	return binary.BigEndian.AppendUint32(b, s.entries.Add(1))
}

// Audit lists the operators' audit log, oldest first. Without a key it reads the sides of all records. See [driver.AuditLog].
func (s *Store) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	found := map[string]driver.AuditEntry{} // by field and key
	add := func(page []*item) error {
		for _, i := range page {
			fields, values, err := s.side(ctx, i, "a")
			for _, name := range fields {
				var e driver.AuditEntry
				if e, err = decodeRow[driver.AuditEntry](values[name]); err != nil {
					break
				}
				if !e.At.Before(f.Since) && (f.Consumer == "" || f.Consumer == e.Key.Consumer) {
					found[name+string(i.hash[:])] = e
				}
			}
			if err != nil {
				return err
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
	names := slices.Sorted(maps.Keys(found))
	if f.Limit > 0 && len(names) > f.Limit {
		names = names[len(names)-f.Limit:]
	}
	out := make([]driver.AuditEntry, len(names))
	for i, name := range names {
		out[i] = found[name]
	}
	return out, nil
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
	for _, name := range fields {
		if !strings.HasPrefix(name, string(run(h))) {
			old = append(old, name)
			continue
		}
		step, err := decodeRow[driver.Step](values[name])
		if err != nil {
			return nil, nil, fmt.Errorf("read a step: %w", err)
		}
		steps = append(steps, step)
	}
	return steps, old, err
}

// WriteSteps writes a journal. Every write changes the record's UpdatedAt, so that of two at a time one is decided again, on
// the journal that the other one wrote. Effects are not supported. See [driver.StepStore].
func (s *Store) WriteSteps(ctx context.Context, h driver.Hold, w ...driver.StepWrite) (o driver.Outcome, err error) {
	for i := range w {
		if w[i].Effects != nil {
			return driver.Unknown, &driver.ItemError{Index: i, Err: fmt.Errorf("effects in Redis: %w", driver.ErrUnsupported)}
		}
	}
	it := newItem(&h.Key)
	it.decide = func(r driver.Record, now time.Time, _ uint64) (after driver.Record, write bool, more []any) {
		var rows, put []driver.Step
		var old []string
		if rows, old, err = s.steps(ctx, it, &h); err != nil { // after the record, which every writer of the journal changes
			return r, false, nil
		}
		if put, _, o = driver.DecideSteps(r, rows, h, w, now); o != driver.Applied || len(put) == 0 {
			return r, false, nil
		}
		for _, p := range put {
			more = append(more, binary.BigEndian.AppendUint32(run(&h), uint32(p.Seq)), encodeRow(p)) //nolint:gosec // a count
		}
		for _, name := range old {
			more = append(more, name, "")
		}
		if r.UpdatedAt = r.UpdatedAt.Add(time.Microsecond); now.After(r.UpdatedAt) {
			r.UpdatedAt = now
		}
		return r, true, more
	}
	for again := true; again; again = errors.Is(it.err, driver.ErrNotCommitted) { // one run may write from many goroutines
		s.read(ctx, it)
		s.swap(ctx, []*item{it})
	}
	if err = cmp.Or(err, it.err); err != nil {
		return driver.Unknown, fmt.Errorf("write steps of key %q: %w", h.Key.Raw, err)
	}
	return o, nil
}

// AddDuplicates appends duplicates of keys that have a record. See [driver.DuplicateLog].
func (s *Store) AddDuplicates(ctx context.Context, ds ...driver.Duplicate) error {
	items := make([]*item, len(ds))
	for i, d := range ds {
		items[i] = newItem(&ds[i].Key)
		d.Key = driver.Key{} // it is the record's
		items[i].args = []any{verbDuplicate, encodeRow(d)}
	}
	s.run(ctx, items)
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
	if err == nil && values["n"] != "" {
		total, err = strconv.ParseInt(values["n"], 10, 64)
	}
	for n := max(total-driver.MaxDuplicates, 0) + 1; n <= total && err == nil; n++ {
		var d driver.Duplicate
		d, err = decodeRow[driver.Duplicate](values[fmt.Sprint("d", n%driver.MaxDuplicates)])
		d.Key = k
		newest = append(newest, d)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("list duplicates: %w", err)
	}
	return total, newest, nil
}
