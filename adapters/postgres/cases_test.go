package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// planned asks for the plan of every query before it runs it.
type planned struct {
	rows
	plan *[]string
}

func (d planned) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	line := func(r rowstore.Row) error { *d.plan = append(*d.plan, r.Text(0)); return nil }
	return errors.Join(d.rows.Read(ctx, line, "EXPLAIN (COSTS OFF) "+query, args...), d.rows.Read(ctx, row, query, args...))
}

// TestCasesReadOnlyTheirPage: among many records and many cases, a page of cases reads the rows of the page.
func TestCasesReadOnlyTheirPage(t *testing.T) {
	db := openLedger(t, emptySchema(t), Options{MaxConns: 1, NoListen: true})
	execSQL(t, db, `INSERT INTO semel_record (place, token, nonce, created_at, updated_at, retain_until, state, consumer)
		SELECT decode(md5('shop') || md5(g::text), 'hex'), g, md5(g::text)::uuid, now(), now(), now() + interval '1 day',
			CASE WHEN g % 10 > 0 THEN 3 WHEN g % 100 = 0 THEN 5 ELSE 4 END, 'shop' FROM generate_series(1, 50000) g`)
	execSQL(t, db, `INSERT INTO semel_case (place, consumer, state, since)
		SELECT r.place, r.consumer, r.state, r.updated_at + r.token * interval '1 microsecond' FROM semel_record r WHERE r.state IN (4, 5)`)
	execSQL(t, db, "VACUUM ANALYZE semel_record, semel_case")
	for _, f := range []driver.CaseFilter{
		{}, {Newest: true}, {Consumer: "shop"}, {State: driver.Uncertain}, {Consumer: "shop", State: driver.FailedState, Newest: true},
	} {
		for _, after := range []driver.Cursor{"", driver.NewCursor(1, []byte("place"))} {
			var plan []string
			s := rowstore.New(planned{rows{db}, &plan})
			f.Limit, f.After = 50, after
			_, _, err := s.Cases(t.Context(), f)
			if err != nil && !errors.Is(err, driver.ErrUnreadable) { // the keys are no keys
				t.Fatal(err)
			}
			n, err := s.CountCases(t.Context(), f.Consumer, f.State, 100)
			if err != nil || n != 100*len(f.States()) {
				t.Errorf("%+v: %d cases, %v", f, n, err)
			}
			text := strings.Join(plan, "\n")
			if strings.Contains(text, "Seq Scan") || strings.Contains(text, "->  Sort") || strings.Contains(text, "Incremental Sort") ||
				strings.Count(text, " using semel_case_") != 2*len(f.States()) {
				t.Errorf("%+v:\n%s", f, text)
			}
		}
	}
}

// TestPagesOfDeadLettersReadTheirIndex: a page does not read the dead letters of other queues, and sorts none.
func TestPagesOfDeadLettersReadTheirIndex(t *testing.T) {
	db := openLedger(t, emptySchema(t), Options{MaxConns: 1, NoListen: true})
	if err := db.Queue("few").Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	execSQL(t, db, `INSERT INTO semel_dead_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts, dead_at,
			msg_id, msg_queue, body)
		SELECT CASE WHEN g % 10 = 0 THEN q.id ELSE q.id + 1 END, g::text, 'failed', 'refused', 'shop', '', 'k', 1, g, 1, now(), 'm', 'few', ''
		FROM generate_series(1, 20000) g, semel_queue q`)
	execSQL(t, db, "VACUUM ANALYZE semel_dead_letter")
	for _, f := range []driver.DeadLetterFilter{{}, {Newest: true}, {Kind: "failed"}, {Consumer: "nobody", Newest: true}} {
		for _, after := range []driver.Cursor{"", driver.NewCursor(10000, nil)} {
			var plan []string
			f.Limit, f.After = 50, after
			page, next, err := rowqueue.New(planned{rows{db}, &plan}, "few", &queueSQL, nil).PageDeadLetters(t.Context(), f)
			if err != nil || (len(page) == 50) != (f.Consumer == "") || next == "" && after == "" {
				t.Errorf("%+v: %d, %q, %v", f, len(page), next, err)
			}
			text := strings.Join(plan, "\n")
			if strings.Contains(text, "Seq Scan on semel_dead_letter") || strings.Contains(text, "Sort") || !strings.Contains(text, "Index Cond: ((queue = $0)") && !strings.Contains(text, "Index Cond: (queue = $0)") {
				t.Errorf("%+v:\n%s", f, text)
			}
		}
	}
}
