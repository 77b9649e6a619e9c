// Package mysqltest makes databases for tests on a MariaDB or MySQL.
package mysqltest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"net/url"
	"testing"

	mysqldriver "github.com/go-sql-driver/mysql"
)

// Database makes an empty database on the server of a URL, and returns its URL. It is dropped when the test ends.
func Database(t testing.TB, address string) string {
	t.Helper()
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails
	name := "semel_test_" + hex.EncodeToString(random[:])
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	admin, err := Connect(address)
	if err == nil {
		_, err = admin.ExecContext(t.Context(), "CREATE DATABASE "+name)
	}
	if err != nil {
		t.Fatalf("make a database on %s: %v", u.Host, err)
	}
	t.Cleanup(func() {
		if _, err := admin.ExecContext(context.Background(), "DROP DATABASE "+name); err != nil { // a test may have stopped the server
			t.Logf("database %s was not dropped: %v", name, err)
		}
		_ = admin.Close()
	})
	return u.String()
}

// Connect returns a pool of connections to the server of a URL.
func Connect(address string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	cfg := mysqldriver.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName, cfg.InterpolateParams = u.User.Username(), "tcp", u.Host, u.Path[1:], true
	cfg.Passwd, _ = u.User.Password()
	cfg.Logger = &mysqldriver.NopLogger{}
	c, err := mysqldriver.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(c), nil
}
