package semeltest

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// scanned is more than one page of any store.
const scanned = 2345

// testScan scans more records than a store reads at once: each comes once, in whatever order.
func testScan(t testing.TB, s driver.Store) {
	scan, ok := driver.As[driver.RecordScanner](s)
	if !ok {
		t.Log("left out: the store has no driver.RecordScanner")
		return
	}
	all, some := map[driver.Key]int{}, map[driver.Key]int{}
	var done []driver.Grant
	for i := 0; i < scanned; i += 335 {
		keys := make([]driver.Key, 335)
		for j := range keys {
			keys[j] = driver.Key{Consumer: "scanned", Tenant: fmt.Sprint(i % 2), Raw: fmt.Sprint(i + j)}
			all[keys[j]] = 1
		}
		g := mustClaim(t, s, keys...)
		done = append(done, g[:7]...)
	}
	for _, g := range done {
		mustFinish(t, s, driver.Applied, complete(g))
		some[g.Hold.Key] = 1
	}
	for _, x := range []struct {
		filter driver.RecordFilter
		want   map[driver.Key]int
	}{
		{driver.RecordFilter{Consumer: "scanned"}, all},
		{driver.RecordFilter{Consumer: "scanned", State: driver.Completed}, some},
		{driver.RecordFilter{Consumer: "nobody"}, map[driver.Key]int{}},
	} {
		got := map[driver.Key]int{}
		err := scan.ScanRecords(t.Context(), x.filter, func(r driver.Record) error {
			got[r.Key]++
			return nil
		})
		if err != nil || !maps.Equal(got, x.want) {
			t.Errorf("scan of records with %+v: %d keys, %v, wanted %d keys, each once", x.filter, len(got), err, len(x.want))
		}
	}
	testScanEnds(t, scan)
}

// testScanEnds ends scans early, by the limit and by an error.
func testScanEnds(t testing.TB, scan driver.RecordScanner) {
	for _, limit := range []int{1, 1000, scanned - 1} {
		n := 0
		err := scan.ScanRecords(t.Context(), driver.RecordFilter{Consumer: "scanned", Limit: limit}, func(driver.Record) error {
			n++
			return nil
		})
		if err != nil || n != limit {
			t.Errorf("scan of %d records: %d came, %v", limit, n, err)
		}
	}
	n, enough := 0, errors.New("enough")
	err := scan.ScanRecords(t.Context(), driver.RecordFilter{}, func(driver.Record) error {
		n++
		return enough
	})
	if n != 1 || !errors.Is(err, enough) {
		t.Errorf("scan that is ended by the first record: %d came, %v", n, err)
	}
}
