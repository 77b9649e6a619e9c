package sqlite

import (
	"database/sql"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestViewsForPeople: the views have the names and columns that the docs select from on PostgreSQL too, and show states by
// name.
func TestViewsForPeople(t *testing.T) {
	db := openAt(t, t.TempDir()+"/x.db", Options{})
	s, q, ctx := db.Store(), db.Queue("orders"), t.Context()
	for i, m := range []driver.Message{
		{ID: "taken", Body: []byte("body")}, {ID: "first", Group: "g", Headers: map[string]string{"h": "1"}},
		{ID: "second", Group: "g"}, {ID: "later", Delay: time.Hour},
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
	k := driver.Key{Consumer: "shop", Raw: "o-1"}
	c := driver.Claim{Key: k, Lease: time.Minute, Nonce: nonce()}
	if g, err := s.Claim(ctx, c); err != nil || g[0].Verdict != driver.Acquired {
		t.Fatal(g, err)
	}
	l := driver.DeadLetter{ID: "l", Kind: driver.DeadLetterFailed, Key: k, Reason: "why", Message: driver.Message{ID: "m", Body: []byte("12345")}}
	if err := q.PutDeadLetter(ctx, l); err != nil {
		t.Fatal(err)
	}
	for query, want := range map[string][]string{
		"SELECT key || ' ' || state || ' ' || takeover FROM semel_records WHERE updated_at > '2020'": {"o-1 IN_PROGRESS resume"},
		"SELECT id || ': ' || state || ' ' || count FROM semel_messages ORDER BY pos": {
			"taken: in flight 1", "first: ready 0", "second: waits for its group 0", "later: delayed 0",
		},
		"SELECT queue || ' ' || body FROM semel_messages WHERE id = 'taken' AND due_at = sent_at AND until > sent_at":        {"orders body"},
		"SELECT queue || ' ' || kind || ' ' || key || ' ' || reason || ' ' || size FROM semel_dead_letters ORDER BY dead_at": {"orders failed o-1 why 5"},
	} {
		got, err := texts(db.reader, query)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, wanted %q (%v)", query, got, want, err)
		}
	}
}

func texts(db *sql.DB, query string) (out []string, err error) {
	rows, err := db.Query(query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		v := sql.NullString{String: "NULL"}
		if err := rows.Scan(&v); err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		out = append(out, v.String)
	}
	return out, rows.Err()
}
