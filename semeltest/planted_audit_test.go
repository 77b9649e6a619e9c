package semeltest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedAudit is memory's store with a bug in its audit log.
type plantedAudit struct {
	*memory.Store
	operate func(s *plantedAudit, ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error)
	filter  func(f *driver.AuditFilter)
	refuse  func(id *string, e *driver.AuditEntry)
	list    func(s *plantedAudit, e []driver.AuditEntry) []driver.AuditEntry
	gone    []driver.AuditEntry // entries that a purge should have deleted
	extra   []driver.AuditEntry // entries that should not exist
}

func (s *plantedAudit) Operate(ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
	if s.operate != nil {
		return s.operate(s, ctx, op)
	}
	return s.Store.Operate(ctx, op)
}

func (s *plantedAudit) Audit(ctx context.Context, f driver.AuditFilter) ([]driver.AuditEntry, error) {
	if s.filter != nil {
		s.filter(&f)
	}
	e, err := s.Store.Audit(ctx, f)
	if s.list != nil {
		e = s.list(s, e)
	}
	return append(e, s.extra...), err
}

func (s *plantedAudit) Sweep(ctx context.Context, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
	if s.list != nil {
		s.gone, _ = s.Store.Audit(ctx, driver.AuditFilter{Limit: 1})
	}
	return s.Store.Sweep(ctx, horizon, limit, consumers...)
}

func (s *plantedAudit) LogRefusal(ctx context.Context, id string, e driver.AuditEntry) error {
	if s.refuse != nil {
		s.refuse(&id, &e)
	}
	return s.Store.LogRefusal(ctx, id, e)
}

// eachEntry is a list with a mistake in every entry.
func eachEntry(change func(e *driver.AuditEntry)) func(s *plantedAudit) {
	return func(s *plantedAudit) {
		s.list = func(_ *plantedAudit, list []driver.AuditEntry) []driver.AuditEntry {
			for i := range list {
				change(&list[i])
			}
			return list
		}
	}
}

func auditBugs() map[string]struct {
	in   string
	make func(s *plantedAudit)
} {
	type bug = struct {
		in   string
		make func(s *plantedAudit)
	}
	const entries, filters = "audit log, an entry for every change", "audit log, filters"
	filter := func(change func(f *driver.AuditFilter)) bug {
		return bug{filters, func(s *plantedAudit) { s.filter = change }}
	}
	refused := func(change func(id *string, e *driver.AuditEntry)) bug {
		return bug{"audit log, refused requests", func(s *plantedAudit) { s.refuse = change }}
	}
	n := 0
	return map[string]bug{
		"refusals pile up":    refused(func(id *string, _ *driver.AuditEntry) { n++; *id += strings.Repeat("x", n) }),
		"one refusal for all": refused(func(id *string, _ *driver.AuditEntry) { *id = "" }),
		"a refusal of nobody": refused(func(_ *string, e *driver.AuditEntry) { e.By = "" }),
		"a refusal of a key":  refused(func(_ *string, e *driver.AuditEntry) { e.Key.Raw = "k" }),
		"an operation":        refused(func(_ *string, e *driver.AuditEntry) { e.Kind = driver.Erase }),
		"nobody's name":       {entries, eachEntry(func(e *driver.AuditEntry) { e.By = "" })},
		"the state after":     {entries, eachEntry(func(e *driver.AuditEntry) { e.From = e.To })},
		"no reason":           {entries, eachEntry(func(e *driver.AuditEntry) { e.Reason = "" })},
		"text ends at NUL":    {entries, eachEntry(func(e *driver.AuditEntry) { e.Reason = cutNUL(e.Reason) })},
		"the token after":     {entries, eachEntry(func(e *driver.AuditEntry) { e.Token++ })},
		"verified is lost":    {entries, eachEntry(func(e *driver.AuditEntry) { e.Verified = false })},
		"renewed is lost":     {entries, eachEntry(func(e *driver.AuditEntry) { e.Renewed = false })},
		"no time":             {entries, eachEntry(func(e *driver.AuditEntry) { e.At = time.Time{} })},
		"consumers mix":       filter(func(f *driver.AuditFilter) { f.Consumer = "" }),
		"keys mix":            filter(func(f *driver.AuditFilter) { f.Key = driver.Key{} }),
		"tenants mix":         filter(func(f *driver.AuditFilter) { f.Key.Tenant = "" }),
		"the whole past":      filter(func(f *driver.AuditFilter) { f.Since = time.Time{} }),
		"a limit is ignored":  filter(func(f *driver.AuditFilter) { f.Limit = 0 }),
		"the first, not the latest": {filters, func(s *plantedAudit) {
			limit := 0
			s.filter = func(f *driver.AuditFilter) { limit, f.Limit = f.Limit, 0 }
			s.list = func(_ *plantedAudit, e []driver.AuditEntry) []driver.AuditEntry {
				if limit > 0 && limit < len(e) {
					e = e[:limit]
				}
				return e
			}
		}},
		"the latest first": {entries, func(s *plantedAudit) {
			s.list = func(_ *plantedAudit, e []driver.AuditEntry) []driver.AuditEntry {
				for i, j := 0, len(e)-1; i < j; i, j = i+1, j-1 {
					e[i], e[j] = e[j], e[i]
				}
				return e
			}
		}},
		"a repetition leaves an entry": {entries, func(s *plantedAudit) {
			s.operate = func(s *plantedAudit, ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
				before, _, _ := s.Record(ctx, op.Key)
				r, o, err := s.Store.Operate(ctx, op)
				if o == driver.Applied && before.State == r.State && before.Disposed == r.Disposed {
					s.extra = append(s.extra, op.Entry(before, r, r.UpdatedAt))
				}
				return r, o, err
			}
		}},
		"a refusal leaves an entry": {entries, func(s *plantedAudit) {
			s.operate = func(s *plantedAudit, ctx context.Context, op driver.Operation) (driver.Record, driver.Outcome, error) {
				r, o, err := s.Store.Operate(ctx, op)
				if o == driver.Lost {
					s.extra = append(s.extra, op.Entry(r, r, r.UpdatedAt))
				}
				return r, o, err
			}
		}},
		"a purge leaves the entries": {"audit log goes with its record", func(s *plantedAudit) {
			s.list = func(s *plantedAudit, e []driver.AuditEntry) []driver.AuditEntry { return append(s.gone, e...) }
		}},
	}
}

func cutNUL(s string) string {
	for i := range len(s) {
		if s[i] == 0 {
			return s[:i]
		}
	}
	return s
}

// TestPlantedAuditBugs plants one bug at a time into a correct audit log: the suite has to notice each.
func TestPlantedAuditBugs(t *testing.T) {
	for name, b := range auditBugs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caught(t, semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := &plantedAudit{Store: db.Store()}
				b.make(s)
				return semeltest.StoreSetup{Store: s, Advance: clock.advance, Queue: db.Queue("orders"), Ledger: memledger.Of(s.Store)}
			}, b.in))
		})
	}
}

// forgetful loses the versions of dead letters.
type forgetful struct{ *memory.Queue }

func (q forgetful) PutDeadLetter(ctx context.Context, l driver.DeadLetter) error {
	l.Version = ""
	return q.Queue.PutDeadLetter(ctx, l)
}

// TestPlantedDeadLetterBug: a dead-letter queue that loses versions is noticed.
func TestPlantedDeadLetterBug(t *testing.T) {
	caught(t, semeltest.CheckQueue(t, func(testing.TB) semeltest.QueueSetup {
		db, clock := openFake()
		return semeltest.QueueSetup{Queue: forgetful{db.Queue("orders")}, Advance: clock.advance, Visibility: 30 * time.Second}
	}, "dead-letter queue"))
}
