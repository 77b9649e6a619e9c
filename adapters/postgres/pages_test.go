package postgres

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
	"github.com/semel-dev/semel/semeltest"
)

// measured runs every query several times under EXPLAIN ANALYZE, before it runs it.
type measured struct {
	rows
	most *cost
}

// cost is what the queries of a page cost: the rows that the largest node of a plan produced or dropped, and the time of the
// fastest of several runs, because the machine may be loaded. Plan is all plans.
type cost struct {
	rows int
	took time.Duration
	plan string
}

var (
	planRows = regexp.MustCompile(`actual rows=(\d+)(?:\.\d+)? loops=(\d+)|Rows Removed by (?:Filter|Join Filter|Index Recheck): (\d+)`)
	planSort = regexp.MustCompile(`Sort \(actual rows=(\d+)`)
	planTime = regexp.MustCompile(`Execution Time: ([\d.]+) ms`)
)

func (d measured) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	fastest := time.Hour
	for range 5 {
		var plan strings.Builder
		line := func(r rowstore.Row) error { plan.WriteString(r.Text(0) + "\n"); return nil }
		if err := d.rows.Read(ctx, line, "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) "+query, args...); err != nil {
			return err
		}
		for _, m := range planRows.FindAllStringSubmatch(plan.String(), -1) {
			n := 1
			for _, part := range m[1:] {
				if v, err := strconv.Atoi(part); err == nil {
					n *= v
				}
			}
			d.most.rows = max(d.most.rows, n)
		}
		m := planTime.FindStringSubmatch(plan.String())
		if m == nil {
			return errors.New("no time in the plan: " + plan.String())
		}
		took, err := time.ParseDuration(m[1] + "ms")
		if err != nil {
			return err
		}
		fastest, d.most.plan = min(fastest, took), d.most.plan+plan.String()
	}
	d.most.took += fastest
	return d.rows.Read(ctx, row, query, args...)
}

// sorted reports whether a plan sorts more than most rows.
func sorted(plan string, most int) bool {
	for _, m := range planSort.FindAllStringSubmatch(plan, -1) {
		if n, err := strconv.Atoi(m[1]); err != nil || n > most {
			return true
		}
	}
	return false
}

// fiveMillion makes five million records, of which a hundred thousand need a person, and what belongs to such a store. It takes
// a minute or two.
func fiveMillion(t *testing.T, db *DB) {
	t.Helper()
	if err := db.Queue("shop").Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"ALTER TABLE semel_record SET UNLOGGED",
		`INSERT INTO semel_record (place, token, nonce, created_at, updated_at, retain_until, state, consumer, result)
			SELECT substr(md5('shop'), 1, 6)::bytea || int8send(g * 2654435761), g, md5(g::text)::uuid, now(), now(), now() + interval '1 day',
				CASE WHEN g % 50 > 0 THEN 3 WHEN g % 100 = 0 THEN 5 ELSE 4 END, 'shop', '{"charge":"ch_1"}' FROM generate_series(1, 5000000) g`,
		`INSERT INTO semel_case (place, consumer, state, since)
			SELECT r.place, r.consumer, r.state, r.updated_at + r.token * interval '1 microsecond' FROM semel_record r WHERE r.state IN (4, 5)`,
		`INSERT INTO semel_duplicate (place, nr, at, message, worker, queue, delivery, decision, cause)
			SELECT md5(g::text)::bytea, 1, now(), 'm', 'w', 'shop', 2, 'replayed', 'redelivery' FROM generate_series(1, 500000) g`,
		`INSERT INTO semel_step (place, epoch, version, name, seq, state, undo, failures, token, nonce, updated_at)
			SELECT md5(g::text)::bytea, 0, '', '', 1, 3, false, 0, 0, md5(g::text)::uuid, now() FROM generate_series(1, 500000) g`,
		`INSERT INTO semel_audit (place, at, who, kind, was, became, generation, verified, renewed, token, consumer, tenant, key)
			SELECT md5(g::text)::bytea, now(), 'ana', 1, 5, 3, 1, false, false, g, 'shop', '', 'k' FROM generate_series(1, 500000) g`,
		`INSERT INTO semel_dead_letter (queue, id, kind, reason, consumer, tenant, key, generation, token, attempts, dead_at, msg_id, msg_queue, body)
			SELECT q.id, g::text, 'failed', 'refused', 'shop', '', 'k', 1, g, 1, now(), 'm', 'shop', repeat('x', 500)::bytea
			FROM generate_series(1, 100000) g, semel_queue q`,
		`INSERT INTO semel_message (queue, due_at, until, sent_at, id, grp, waits, body)
			SELECT q.id, now() + (g % 3 - 1) * interval '1 hour', CASE WHEN g % 3 = 0 AND g < 1000 THEN now() + interval '1 hour' END, now(), 'm',
				CASE WHEN g % 5 = 0 THEN int4send(g / 10) END, g % 10 = 5, repeat('x', 500)::bytea
			FROM generate_series(1, 300000) g, semel_queue q`,
		"VACUUM ANALYZE semel_record, semel_case, semel_duplicate, semel_step, semel_audit, semel_dead_letter, semel_message",
	} {
		execSQL(t, db, sql)
	}
}

// TestS1_19PagesOfFiveMillionRecords: what the console, semel top and the metrics read from a store of five million records takes
// the database 50 ms at most, and counting up to ten thousand entries half a second. No query reads or sorts more rows than a few pages have.
func TestS1_19PagesOfFiveMillionRecords(t *testing.T) {
	if !semeltest.Nightly() {
		t.Skip("it runs in make nightly: five million rows take minutes")
	}
	db := openLedger(t, emptySchema(t), Options{MaxConns: 1, NoListen: true})
	fiveMillion(t, db)
	k := driver.Key{Consumer: "shop", Raw: "order-1"}
	g := mustClaim(t, db.Store(), driver.Claim{Key: k, Lease: long})[0]
	if _, err := db.Store().Finish(t.Context(), driver.Finish{Hold: g.Hold, Final: driver.Park}); err != nil {
		t.Fatal(err)
	}
	var c cost
	s, q := rowstore.New(measured{rows{db}, &c}), rowqueue.New(measured{rows{db}, &c}, "shop", &queueSQL, nil)
	const page, counted = 1000, 10_000 // the largest page of the console, and up to how many it counts
	for name, read := range map[string]func(context.Context) error{
		"overview: uncertain keys": func(ctx context.Context) error {
			_, _, err := s.Cases(ctx, driver.CaseFilter{Consumer: "shop", State: driver.Uncertain, Limit: 50})
			return err
		},
		"metrics: uncertain keys": func(ctx context.Context) error {
			_, err := s.CountCases(ctx, "shop", driver.Uncertain, page)
			return err
		},
		"overview: dead letters": func(ctx context.Context) error {
			_, _, err := q.PageDeadLetters(ctx, driver.DeadLetterFilter{Limit: page + 1})
			return err
		},
		"overview: groups of dead letters, counted": func(ctx context.Context) error {
			all, err := q.GroupDeadLetters(ctx, counted)
			if len(all) != 1 || all[0].Count != counted {
				t.Errorf("groups: %+v", all)
			}
			return err
		},
		"overview: messages, counted": func(ctx context.Context) error {
			name := rowstore.Name("shop")
			n, err := rowqueue.Count(ctx, measured{rows{db}, &c}, "shop", counted, sqlCount, name, int64(counted), name, int64(counted))
			if !n.AtLeast || n.Visible < counted/2 || n.InFlight == 0 {
				t.Errorf("messages: %+v", n)
			}
			return err
		},
		"a group of dead letters": func(ctx context.Context) error {
			_, _, err := q.PageDeadLetters(ctx, driver.DeadLetterFilter{Class: "refused", Limit: page})
			return err
		},
		"overview: operations": func(ctx context.Context) error {
			_, err := s.Audit(ctx, driver.AuditFilter{Consumer: "shop", Limit: 8})
			return err
		},
		"audit log": func(ctx context.Context) error {
			_, err := s.Audit(ctx, driver.AuditFilter{Consumer: "shop", Limit: page})
			return err
		},
		"dead letter": func(ctx context.Context) error {
			_, ok, err := q.DeadLetter(ctx, "77777")
			if !ok {
				t.Error("there is no dead letter 77777")
			}
			return err
		},
		"key": func(ctx context.Context) error {
			r, ok, err := s.Record(ctx, k)
			if err != nil || !ok {
				t.Errorf("%v, %v", ok, err)
			}
			_, err = s.Audit(ctx, driver.AuditFilter{Key: k})
			_, serr := s.Steps(ctx, r.Hold())
			_, _, derr := s.Duplicates(ctx, k)
			return errors.Join(err, serr, derr)
		},
	} {
		c = cost{}
		if err := read(t.Context()); err != nil && !errors.Is(err, driver.ErrUnreadable) { // most keys are no keys
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%-26s %v, at most %d rows", name, c.took, c.rows)
		most, long := 2*page, 50*time.Millisecond
		if strings.HasSuffix(name, "counted") {
			most, long = 2*counted, 500*time.Millisecond
		}
		if c.plan == "" || c.took > long || c.rows > most || sorted(c.plan, 2*page) || strings.Contains(c.plan, "Seq Scan") {
			t.Errorf("%s takes %v and reads %d rows at once:\n%s", name, c.took, c.rows, c.plan)
		}
	}
}
