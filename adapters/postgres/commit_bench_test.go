package postgres

import (
	"fmt"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// BenchmarkCommit claims keys and commits works in batches, each with a statement or a row as its effect, and without.
func BenchmarkCommit(b *testing.B) {
	for _, effects := range []string{"exec", "insert", "none"} {
		for _, batch := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("effects=%s/batch=%d", effects, batch), func(b *testing.B) {
				db := openAgain(b, openFor(b, Options{})) // sessions that made no table
				s := db.Store()
				for nr := range b.N {
					ws := worksFor(b, s, fmt.Sprint(nr), batch)
					for i := range ws {
						switch effects {
						case "none":
							ws[i].Effects = nil
						case "insert":
							var st driver.Statements
							st.Insert("ledger", []string{"id"}, ws[i].Finish.Hold.Key.Raw)
							ws[i].Effects = &st
						}
					}
					if out, err := s.Commit(b.Context(), ws...); err != nil || out[0] != driver.Applied {
						b.Fatal(out, err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*batch), "µs/msg")
			})
		}
	}
}
