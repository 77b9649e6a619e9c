package semeltest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// workerCases test the reports of workers that a driver.WorkerLog keeps.
func workerCases() []suiteCase[StoreSetup] {
	with := func(f func(b *workerBench)) func(testing.TB, StoreSetup) {
		return func(t testing.TB, s StoreSetup) {
			log, ok := driver.As[driver.WorkerLog](s.Store)
			if !ok {
				t.Log("left out: the store is no driver.WorkerLog")
				return
			}
			if _, err := log.Workers(t.Context()); errors.Is(err, driver.ErrUnsupported) { // by some tables of the store
				t.Logf("left out: %v", err)
				return
			}
			b := &workerBench{bench: newBench(t, s), log: log, at: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)}
			f(b)
			b.bad.report(t)
		}
	}
	return []suiteCase[StoreSetup]{
		{"workers, the latest report of each", with(testWorkersReplaced)},
		{"workers, those that disappeared", with(testWorkersForgotten)},
	}
}

type workerBench struct {
	*bench
	log driver.WorkerLog
	at  time.Time
}

// worker makes a report of the queue's worker id.
func (b *workerBench) worker(queue, id string) driver.WorkerReport {
	return driver.WorkerReport{
		ID: id, Name: "host:" + id, Queue: queue, Consumer: "c-" + queue, Version: "v1", Started: b.at.Add(-time.Hour), Seen: b.at,
		Settings: map[string]string{"key": "json:/order_id", "retention": "14d"}, Guarantee: "exactly once",
		Window: 14 * 24 * time.Hour, Horizon: 4 * 24 * time.Hour, Running: 2, InFlight: 7, Paused: "the store does not respond",
		Holds: []driver.WorkerHold{{Tenant: "t", Key: "k'\"ö", Token: 1 << 62, Attempt: 3, Since: b.at.Add(-time.Minute)}},
	}
}

func (b *workerBench) report(r driver.WorkerReport) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	if err := b.log.ReportWorker(ctx, r); err != nil {
		b.t.Fatalf("report worker %s: %v", r.ID, err)
	}
}

func (b *workerBench) forget(id string) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	if err := b.log.ForgetWorker(ctx, id); err != nil {
		b.t.Fatalf("forget worker %s: %v", id, err)
	}
}

// check compares all reports with the expected ones.
func (b *workerBench) check(what string, want ...driver.WorkerReport) {
	b.t.Helper()
	ctx, cancel := b.call()
	defer cancel()
	got, err := b.log.Workers(ctx)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	if len(got) != len(want) {
		b.bad.add("%s: %d reports, wanted %d: %+v", what, len(got), len(want), got)
		return
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			b.bad.add("%s: report %d is %+v, wanted %+v", what, i, got[i], want[i])
		}
	}
}

func testWorkersReplaced(b *workerBench) {
	b.check("no worker has reported")
	one, other, another := b.worker("q1", "b"), b.worker("q2", "0"), b.worker("q1", "a")
	b.report(other)
	b.report(one)
	b.report(another)
	b.check("three workers", another, one, other)
	one.Seen, one.Running, one.Paused, one.Holds = b.at.Add(10*time.Second), 0, "", nil
	b.report(one)
	b.check("one reported again", another, one, other)
}

func testWorkersForgotten(b *workerBench) {
	gone, kept, ended := b.worker("q", "gone"), b.worker("q", "kept"), b.worker("q", "ended")
	kept.Seen = b.at.Add(time.Minute)
	b.report(gone)
	b.report(kept)
	b.report(ended)
	b.forget("ended")
	b.forget("nobody")
	b.check("one ended", gone, kept)
	late := b.worker("q", "late")
	late.Seen = b.at.Add(driver.WorkerKept + time.Second)
	b.report(late)
	b.check("one has not reported for too long", kept, late)
}
