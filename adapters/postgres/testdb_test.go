package postgres

import (
	"net/url"
	"testing"
)

// withParam adds a parameter to a connection URL.
func withParam(t testing.TB, address, name, value string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	v := u.Query()
	v.Set(name, value)
	u.RawQuery = v.Encode()
	return u.String()
}

// queueDB opens a database of its own with few connections.
func queueDB(t testing.TB, o Options) *DB { return openURL(t, schemaURL(t), o) }

func openURL(t testing.TB, u string, o Options) *DB {
	t.Helper()
	o.Create = true
	if o.MaxConns == 0 {
		o.MaxConns = 4
	}
	db, err := Open(t.Context(), u, o)
	return opened(t, db, err)
}

// opened is the result of an Open, to be closed when the test ends.
func opened(t testing.TB, db *DB, err error) *DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// openAgain opens the same database once more, as another process would.
func openAgain(t testing.TB, db *DB) *DB {
	t.Helper()
	return openURL(t, db.pool.Config().ConnString(), Options{})
}
