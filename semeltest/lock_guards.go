package semeltest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/semel-dev/semel/lock"
)

// holders returns two holders that held a lock one after the other. The first does not know that it lost the lock.
func holders(t testing.TB, s LockSetup) (stale, present *lock.Held) {
	t.Helper()
	w := &wire{Store: s.Store}
	stale = acquireLock(t, newLocker(t, w, s.Lease))
	w.cut.Store(true)
	present = acquireLock(t, newLocker(t, s.Other, ages))
	return stale, present
}

// guardedUpdate is the statement that the documentation of lock.Guard shows.
const guardedUpdate = "UPDATE guarded SET value = $1, fence = $2 WHERE id = $3 AND fence <= $2 AND $2 > 0"

// testGuardSQL: the row decides by its token. A stale holder's update changes nothing, on a connection and in a
// transaction, before and after the present holder's; the present one may write as often as it likes.
func testGuardSQL(t testing.TB, s LockSetup) {
	if s.SQL == nil {
		t.Log("left out: no SQL database")
		return
	}
	for _, q := range []string{
		"CREATE TABLE guarded (id TEXT PRIMARY KEY, value TEXT NOT NULL, fence BIGINT NOT NULL)",
		"INSERT INTO guarded (id, value, fence) VALUES ('r', 'nobody', 0)",
	} {
		if _, err := s.SQL.ExecContext(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	stale, present := holders(t, s)
	write := func(h *lock.Held, value string) error {
		return lock.Guard(t.Context(), s.SQL, guardedUpdate, value, h.Token(), "r")
	}
	if err := write(stale, "late, but first"); err != nil {
		t.Errorf("the first to come: %v", err) // nobody with a greater token has written yet: the row cannot know
	}
	for range 2 {
		if err := write(present, "present"); err != nil {
			t.Errorf("the present holder: %v", err)
		}
	}
	if err := write(stale, "stale"); !errors.Is(err, lock.ErrStale) {
		t.Errorf("a stale holder's update: %v, wanted ErrStale", err)
	}
	tx, err := s.SQL.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Guard(t.Context(), tx, guardedUpdate, "stale", stale.Token(), "r"); !errors.Is(err, lock.ErrStale) {
		t.Errorf("a stale holder's update in a transaction: %v, wanted ErrStale", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Error(err)
	}
	if err := lock.Guard(t.Context(), s.SQL, "UPDATE no_such_table SET x = 1"); err == nil || errors.Is(err, lock.ErrStale) {
		t.Errorf("a broken statement: %v, wanted another error than ErrStale", err)
	}
	var value string
	var fence uint64
	err = s.SQL.QueryRowContext(t.Context(), "SELECT value, fence FROM guarded WHERE id = 'r'").Scan(&value, &fence)
	if err != nil || value != "present" || fence != present.Token() {
		t.Errorf("the row has %q with token %d (%v), wanted the present holder's", value, fence, err)
	}
}

// guardedServer is an HTTP resource that compares tokens.
type guardedServer struct {
	mu    sync.Mutex
	seen  uint64
	value string
}

func (g *guardedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	seen, err := lock.CheckHeader(r, g.seen)
	switch {
	case errors.Is(err, lock.ErrStale):
		http.Error(w, err.Error(), http.StatusConflict)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	body, _ := io.ReadAll(r.Body)
	g.seen, g.value = seen, string(body)
}

// testGuardHeader: a server decides by the token in a header.
func testGuardHeader(t testing.TB, s LockSetup) {
	g := &guardedServer{}
	stale, present := holders(t, s)
	srv := httptest.NewServer(g)
	defer srv.Close()
	put := func(h *lock.Held, value string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, srv.URL, strings.NewReader(value))
		if err != nil {
			t.Fatal(err)
		}
		r.Close = true
		if h != nil {
			h.Header(r.Header)
		}
		resp, err := srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		h     *lock.Held
		value string
		want  int
	}{
		{stale, "first", 200}, {present, "present", 200}, {stale, "stale", 409}, {present, "present again", 200}, {nil, "nobody", 400},
	} {
		if got := put(c.h, c.value); got != c.want {
			t.Errorf("%q got status %d, wanted %d", c.value, got, c.want)
		}
	}
	if g.value != "present again" || g.seen != present.Token() {
		t.Errorf("the resource has %q with token %d, wanted the present holder's", g.value, g.seen)
	}
}
