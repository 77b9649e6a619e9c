package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// TestHotStatementsUseIndexes asks SQLite for the plan of every statement of the hot paths: none may scan a table.
func TestHotStatementsUseIndexes(t *testing.T) {
	db := open(t)
	small := []string{"semel_state"} // one row
	for name, sql := range map[string]string{
		"record by place": sqlRecordByPlace, "record by token": sqlRecordByToken, "complete": sqlComplete, "record insert": sqlRecordInsert,
		"record update": sqlRecordUpdate, "record delete": sqlRecordDelete, "due": sqlDue,
		"sweep known": sqlSweepKnown, "sweep next": sqlSweepNext, "sweep block": sqlSweepBlock, "purge": sqlSweepPurge, "expire": sqlSweepExpire,
		"steps of": sqlBelongings[0], "audit of": sqlBelongings[1], "duplicates of": sqlBelongings[2], "case of": sqlCaseDelete,
		"group has": sqlGroupHas, "flights over": sqlFlightsOver, "flight delete": sqlFlightDelete, "to timed": sqlToTimed,
		"stream delete": sqlStreamDelete, "take timed": sqlTakeTimed, "take stream": sqlTakeStream, "hand timed": sqlHandTimed,
		"body": sqlBody, "flight": sqlFlight, "flight rest": sqlFlightRest, "flight until": sqlFlightUntil, "records by place": sqlRecordsByPlace, "flight part": sqlFlightPart,
		"run has": sqlRunHas, "body delete": sqlBodyDelete, "timed": sqlTimed, "timed delete": sqlTimedDelete,
		"timed back": sqlTimedBack, "timed extend": sqlTimedExtend, "group next": sqlGroupNext,
		"next stream": sqlNextStream, "next timed": sqlNextTimed, "next flight": sqlNextFlight,
		"dead letter": rowqueue.SelectDeadLetter, "dead letter delete": rowqueue.DeleteDeadLetter,
		"purge stream": sqlPurgeStream, "purge timed": sqlPurgeTimed, "purge flights": sqlPurgeFlights,
	} {
		rows, err := db.SQL().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+sql, make([]any, strings.Count(sql, "?"))...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(detail, "SCAN") && !strings.Contains(detail, small[0]) || strings.Contains(detail, "TEMP B-TREE") {
				t.Errorf("%s: %s", name, detail)
			}
		}
		if err := rows.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rows.Close()
	}
}

// TestUncertainRecordsHaveAnIndex: metrics list the UNCERTAIN records at every scrape, among any number of others.
func TestUncertainRecordsHaveAnIndex(t *testing.T) {
	db := open(t)
	for _, newest := range []bool{false, true} {
		f := driver.RecordFilter{Consumer: "orders", State: driver.Uncertain, Limit: 100, Newest: newest}
		plans := plansOf(t, db, func(s *rowstore.Store) error { _, err := s.Records(t.Context(), f); return err })
		if len(plans) == 0 {
			t.Error("there is no plan")
		}
		for _, detail := range plans {
			if !strings.Contains(detail, "USING COVERING INDEX semel_case_since (state=?") && !strings.Contains(detail, "semel_record_place (place=?)") &&
				detail != "USE TEMP B-TREE FOR ORDER BY" {
				t.Error(detail)
			}
		}
	}
}

// TestCasesUseIndexes: a page of cases is read in the order of an index, whatever it is filtered by, and no other records are.
func TestCasesUseIndexes(t *testing.T) {
	db := open(t)
	for _, f := range []driver.CaseFilter{
		{}, {Newest: true}, {Consumer: "orders"}, {State: driver.Uncertain}, {Consumer: "orders", State: driver.FailedState, Newest: true},
	} {
		f.Limit, f.After = 50, driver.NewCursor(1, []byte("place"))
		plans := plansOf(t, db, func(s *rowstore.Store) error {
			_, _, err := s.Cases(t.Context(), f)
			_, countErr := s.CountCases(t.Context(), f.Consumer, f.State, 100)
			return errors.Join(err, countErr)
		})
		index := "semel_case_since (state=?"
		if f.Consumer != "" {
			index = "semel_case_consumer (consumer=? AND state=?"
		}
		found := 0
		for _, detail := range plans {
			switch {
			case strings.Contains(detail, index):
				found++
			case strings.Contains(detail, "semel_case") || strings.Contains(detail, "semel_record") || strings.HasPrefix(detail, "SEARCH"):
				if !strings.Contains(detail, "semel_record_place (place=?)") {
					t.Errorf("%+v: %s", f, detail)
				}
			}
		}
		if found != 2*len(f.States()) { // pages and counts
			t.Errorf("%+v: plan %q", f, plans)
		}
	}
}

// TestStepsUseIndexes: a step reads and writes the rows of its run.
func TestStepsUseIndexes(t *testing.T) {
	db := open(t)
	c := claim("k")
	c.Version = driver.TextVersion("1")
	g, err := db.Store().Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	plans := plansOf(t, db, func(s *rowstore.Store) error {
		for _, kind := range []driver.StepWriteKind{driver.RegisterStep, driver.FinishStep} {
			if _, err := s.WriteSteps(t.Context(), g[0].Hold, driver.StepWrite{Kind: kind, Name: "a"}); err != nil {
				return err
			}
		}
		_, err := s.Steps(t.Context(), g[0].Hold)
		return err
	})
	if len(plans) < 6 {
		t.Errorf("only %d plans", len(plans))
	}
	for _, detail := range plans {
		if strings.HasPrefix(detail, "SCAN") {
			t.Error(detail)
		}
	}
}

// planner asks for the plan of every statement that package rowstore sends, and runs it.
type planner struct {
	rows
	t     testing.TB
	plans *[]string
}

func plansOf(t testing.TB, db *DB, do func(*rowstore.Store) error) (plans []string) {
	t.Helper()
	if err := do(rowstore.New(planner{rows{db}, t, &plans})); err != nil {
		t.Fatal(err)
	}
	return plans
}

func (p planner) Read(ctx context.Context, row func(rowstore.Row) error, query string, args ...any) error {
	detail := func(r rowstore.Row) error { *p.plans = append(*p.plans, r.Text(3)); return nil }
	if err := p.rows.Read(ctx, detail, "EXPLAIN QUERY PLAN "+query, args...); err != nil {
		p.t.Errorf("%s: %v", query, err)
	}
	return p.rows.Read(ctx, row, query, args...)
}

func (p planner) Atomic(ctx context.Context, items int, f func(rowstore.Tx) error) error {
	return p.rows.Atomic(ctx, items, func(tx rowstore.Tx) error { return f(plannedTx{tx, p}) })
}

type plannedTx struct {
	rowstore.Tx
	p planner
}

func (x plannedTx) plan(query string, args []any) error {
	detail := func(r rowstore.Row) error { *x.p.plans = append(*x.p.plans, r.Text(3)); return nil }
	return x.Tx.Query(detail, "EXPLAIN QUERY PLAN "+query, args...)
}

func (x plannedTx) Exec(query string, args ...any) error {
	return errors.Join(x.plan(query, args), x.Tx.Exec(query, args...))
}

func (x plannedTx) Query(row func(rowstore.Row) error, query string, args ...any) error {
	return errors.Join(x.plan(query, args), x.Tx.Query(row, query, args...))
}
