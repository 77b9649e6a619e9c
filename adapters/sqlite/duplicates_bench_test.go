package sqlite

import (
	"testing"

	"github.com/semel-dev/semel/semeltest"
)

func BenchmarkDuplicates(b *testing.B) {
	semeltest.BenchDuplicates(b, func(t testing.TB) semeltest.StoreSetup {
		db := openFor(t, Options{})
		return semeltest.StoreSetup{Store: db.Store(), Queue: db.Queue("q")}
	})
}
