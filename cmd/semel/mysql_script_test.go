//go:build unix

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/adapters/mysql/mysqltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestScriptsMySQL runs testdata/mysql. In each script DB is the URL of a database of its own on the shared server, and Q the URL of
// a queue in it, which has a table of charges. Where no server can be had the test is left out.
func TestScriptsMySQL(t *testing.T) {
	shared := server.Shared(t, "mysql")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/mysql", Cmds: commands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			db := mysqltest.Database(e.T().(testing.TB), shared)
			admin, err := mysqltest.Connect(db)
			if err != nil {
				return err
			}
			defer func() { _ = admin.Close() }()
			if _, err := admin.Exec("CREATE TABLE charges (order_id VARCHAR(64), effect_key VARCHAR(64), at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"); err != nil {
				return err
			}
			e.Setenv("DB", db)
			e.Setenv("Q", db+"?queue=orders")
			return nil
		},
	})
}
