package postgres

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/driver"
)

// TestViewsForPeople select everything, whatever bytes there are.
func TestViewsForPeople(t *testing.T) {
	db := openFor(t, Options{})
	s, q, ctx := db.Store(), db.Queue("orders"), t.Context()
	look := func(sql string) []string {
		rows, err := db.pool.Query(ctx, sql)
		if err != nil {
			t.Fatal(err)
		}
		out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			values, err := row.Values()
			return strings.TrimSuffix(fmt.Sprintln(values...), "\n"), err
		})
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		return out
	}
	const strange = "a\x00\xffé"
	k := driver.Key{Consumer: "shop", Tenant: strange, Raw: strange}
	g := mustClaim(t, s, claimOf(k, long), claimOf(driver.Key{Consumer: "shop", Raw: "running"}, long))
	f := completion(g[0])
	f.Result = []byte(strange)
	if _, err := s.Finish(ctx, f); err != nil {
		t.Fatal(err)
	}
	large := driver.Key{Consumer: "shop", Tenant: strings.Repeat("t", 200), Raw: strings.Repeat("k", 200)}
	held := mustClaim(t, s, claimOf(large, long))[0].Hold
	if o, err := s.WriteSteps(ctx, held, driver.StepWrite{Kind: driver.FinishStep, Name: "charge"}); err != nil || o != driver.Applied {
		t.Fatal(o, err)
	}
	if err := s.AddDuplicates(ctx, driver.Duplicate{Key: large, At: time.Now(), MessageID: "m"}, driver.Duplicate{Key: k, At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	for i, m := range []driver.Message{
		{ID: "taken", Body: []byte(strange)}, {ID: strange, Group: "g", Body: []byte("x"), Headers: map[string]string{"h": "1"}},
		{ID: "second", Group: "g"}, {ID: "later", Delay: long},
	} {
		if i == 1 {
			if ds, err := q.Receive(ctx, 1); err != nil || len(ds) != 1 {
				t.Fatal(ds, err)
			}
		}
		if err := q.Send(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	deadLetter := driver.DeadLetter{ID: "l", Kind: driver.DeadLetterFailed, Key: k, Reason: strange, Message: driver.Message{ID: strange, Body: []byte(strange)}}
	if err := q.PutDeadLetter(ctx, deadLetter); err != nil {
		t.Fatal(err)
	}
	const escaped = `a\000\377\303\251`
	for _, x := range []struct{ sql, want string }{
		{"SELECT consumer, tenant, key, state, result FROM semel_records WHERE state = 'COMPLETED'",
			"[shop " + escaped + " " + escaped + " COMPLETED " + escaped + "]"},
		{"SELECT key, state, takeover FROM semel_records WHERE key = 'running'", "[running IN_PROGRESS resume]"},
		{"SELECT tenant, key, name, state FROM semel_steps", "[" + large.Tenant + " " + large.Raw + " charge DONE]"},
		{"SELECT tenant, key, message, nr FROM semel_duplicates ORDER BY message",
			"[" + escaped + " " + escaped + "  1 " + large.Tenant + " " + large.Raw + " m 1]"},
		{"SELECT tenant, key, completed_at FROM semel_records WHERE length(tenant) = 200", "[" + large.Tenant + " " + large.Raw + " <nil>]"},
		{"SELECT completed_at = updated_at, attempt, failures, unknown, generation, epoch FROM semel_records WHERE state = 'COMPLETED'",
			"[true 1 0 false 1 0]"},
		{"SELECT queue, id, state, body FROM semel_messages ORDER BY pos",
			"[orders taken in flight " + escaped + " orders " + escaped + " ready x orders second waits for its group  orders later delayed ]"},
		{"SELECT headers FROM semel_messages WHERE headers IS NOT NULL", `[{"h":"1"}]`},
		{"SELECT queue, id, kind, tenant, key, reason, msg_id, size FROM semel_dead_letters",
			"[orders l failed " + escaped + " " + escaped + " " + escaped + " " + escaped + " 5]"},
	} {
		rows := look(x.sql)
		if got := fmt.Sprint(rows); got != x.want {
			t.Errorf("%s:\n%s, wanted\n%s", x.sql, got, x.want)
		}
	}
	for view, n := range map[string]int{"records": 3, "steps": 1, "duplicates": 2, "messages": 4, "dead_letters": 1} {
		if rows := look("SELECT * FROM semel_" + view); len(rows) != n {
			t.Errorf("%s has %d rows, wanted %d", view, len(rows), n)
		}
		if _, err := db.pool.Exec(ctx, "DELETE FROM semel_"+view); code(err) != "55000" {
			t.Errorf("%s can be written to: %v", view, err)
		}
	}
}

// TestFM43_ShortenedDelayIsStillADelay: a delay that a clock made longer is shortened; the message is not in flight then.
func TestFM43_ShortenedDelayIsStillADelay(t *testing.T) {
	db := queueDB(t, Options{})
	send(t, db.Queue("orders"), driver.Message{ID: "later", Delay: long})
	execSQL(t, db, "UPDATE semel_message SET due_at = due_at + interval '1 day'")
	execSQL(t, db, "SELECT semel_shorten('orders', false, NULL, 0, 1000)")
	var state string
	var shortened bool
	const sql = "SELECT state, due_at < now() + interval '1 day' FROM semel_messages"
	if err := db.pool.QueryRow(t.Context(), sql).Scan(&state, &shortened); err != nil {
		t.Fatal(err)
	}
	if state != "delayed" || !shortened {
		t.Errorf("the message is %s, shortened: %v", state, shortened)
	}
}
