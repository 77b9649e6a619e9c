package semeltest_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/memledger"
	"github.com/semel-dev/semel/memory"
	"github.com/semel-dev/semel/semeltest"
)

// plantedWorkers is memory's store with a bug in its reports of workers.
type plantedWorkers struct {
	*memory.Store
	report func(r *driver.WorkerReport)
	forget bool // does nothing
	list   func(all []driver.WorkerReport) []driver.WorkerReport
}

func (s *plantedWorkers) ReportWorker(ctx context.Context, r driver.WorkerReport) error {
	if s.report != nil {
		s.report(&r)
	}
	return s.Store.ReportWorker(ctx, r)
}

func (s *plantedWorkers) ForgetWorker(ctx context.Context, id string) error {
	if s.forget {
		return nil
	}
	return s.Store.ForgetWorker(ctx, id)
}

func (s *plantedWorkers) Workers(ctx context.Context) ([]driver.WorkerReport, error) {
	all, err := s.Store.Workers(ctx)
	if s.list != nil {
		all = s.list(all)
	}
	return all, err
}

// TestPlantedWorkerBugs: the suite finds mistakes in the reports of workers.
func TestPlantedWorkerBugs(t *testing.T) {
	const latest, gone = "workers, the latest report of each", "workers, those that disappeared"
	n := 0
	for name, bug := range map[string]plantedWorkers{
		latest + "/reports pile up":  {report: func(r *driver.WorkerReport) { n++; r.ID += string(rune('a' + n)) }},
		latest + "/times in seconds": {report: func(r *driver.WorkerReport) { r.Seen = r.Seen.Truncate(time.Second) }},
		latest + "/no settings":      {report: func(r *driver.WorkerReport) { r.Settings = nil }},
		latest + "/no guarantee":     {report: func(r *driver.WorkerReport) { r.Guarantee = "" }},
		latest + "/no horizon":       {report: func(r *driver.WorkerReport) { r.Horizon = 0 }},
		latest + "/no holds":         {report: func(r *driver.WorkerReport) { r.Holds = nil }},
		latest + "/in any order":     {list: func(all []driver.WorkerReport) []driver.WorkerReport { slices.Reverse(all); return all }},
		latest + "/only the first":   {list: func(all []driver.WorkerReport) []driver.WorkerReport { return all[:min(len(all), 1)] }},
		gone + "/the ended stay":     {forget: true},
		gone + "/the disappeared stay": {report: func(r *driver.WorkerReport) {
			if r.ID == "late" {
				r.Seen = r.Seen.Add(-time.Hour)
			}
		}},
		gone + "/those that report soon": {list: func(all []driver.WorkerReport) []driver.WorkerReport {
			return slices.DeleteFunc(all, func(r driver.WorkerReport) bool { return r.ID == "kept" })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			in := latest
			if name[:len(gone)] == gone {
				in = gone
			}
			caught(t, semeltest.CheckStore(t, func(testing.TB) semeltest.StoreSetup {
				db, clock := openFake()
				s := bug
				s.Store = db.Store()
				return semeltest.StoreSetup{Store: &s, Advance: clock.advance, Ledger: memledger.Of(db.Store())}
			}, in))
		})
	}
}
