package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// BenchmarkCommit claims keys and commits works in batches, each with a statement or a row as its effect.
func BenchmarkCommit(b *testing.B) {
	b.Run("effects=exec", func(b *testing.B) {
		benchmarkCommit(b, func(st *driver.Statements, id string) { st.Exec("INSERT INTO ledger VALUES (?)", id) })
	})
	b.Run("effects=insert", func(b *testing.B) {
		benchmarkCommit(b, func(st *driver.Statements, id string) { st.Insert("ledger", []string{"id"}, id) })
	})
}

func benchmarkCommit(b *testing.B, queue func(st *driver.Statements, id string)) {
	const batch = 100
	s := openFor(b, Options{}).Store()
	for nr := range b.N {
		cs := make([]driver.Claim, batch)
		for i := range cs {
			cs[i] = claim(fmt.Sprint(nr, "-", i))
		}
		ws := make([]driver.Work, batch)
		for i, g := range must(s.Claim(b.Context(), cs...))(b) {
			var st driver.Statements
			queue(&st, cs[i].Key.Raw)
			ws[i] = driver.Work{Finish: driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: time.Hour}, Effects: &st}
		}
		if out, err := s.Commit(b.Context(), ws...); err != nil || out[0] != driver.Applied {
			b.Fatal(out, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/msg")
}
