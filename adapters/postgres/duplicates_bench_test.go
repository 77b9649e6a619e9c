package postgres

import (
	"testing"

	"github.com/semel-dev/semel/semeltest"
)

func BenchmarkDuplicates(b *testing.B) {
	semeltest.BenchDuplicates(b, func(t testing.TB) semeltest.StoreSetup {
		db := openAgain(t, openFor(t, Options{})) // sessions that made no table
		return semeltest.StoreSetup{Store: db.Store(), Queue: db.Queue("q")}
	})
}
