package semel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/memory"
)

// TestWorkersReport: the store knows which worker has which key while a handler hangs, and forgets a worker that has ended.
func TestWorkersReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		cfg := orders(db, db.Store())
		cfg.Settings = map[string]string{"key": "json:/id"}
		cfg.Handler = semel.HandlerFunc(func(ctx context.Context, _ *semel.Attempt) error { <-ctx.Done(); return ctx.Err() })
		workers := func() []driver.WorkerReport {
			t.Helper()
			all, err := db.Store().Workers(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		if err := db.Queue("orders").Send(t.Context(), semel.Message{ID: "m", Body: []byte(`{"id":"o-1"}`)}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		stop := start(t, cfg)
		time.Sleep(time.Second / 2)
		synctest.Wait()
		if all := workers(); len(all) != 0 {
			t.Fatalf("a short run is reported: %+v", all)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		all := workers()
		if len(all) != 1 || len(all[0].Holds) != 1 {
			t.Fatalf("%+v; want one worker that holds one key", all)
		}
		w, held := all[0], all[0].Holds[0]
		if w.Queue != "orders" || w.Consumer != "orders" || w.Name == "" || w.Running != 1 || w.InFlight != 1 || w.Paused != "" ||
			w.Settings["key"] != "json:/id" || w.Settings["takeover"] != "resume" || w.Settings["retention"] != "14 days" ||
			!w.Started.Equal(began) || !w.Seen.Equal(began.Add(11*time.Second)) {
			t.Errorf("%+v", w)
		}
		if held.Key != "o-1" || held.Token == 0 || held.Attempt != 1 || !held.Since.Equal(began) {
			t.Errorf("%+v", held)
		}
		stop()
		if all := workers(); len(all) != 0 {
			t.Errorf("it has ended: %+v", all)
		}
	})
}

// TestWorkersOfShortInvocationsDoNotReport: a function that is invoked for each batch would write a report for each.
func TestWorkersOfShortInvocationsDoNotReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		cfg := orders(db, db.Store())
		cfg.Key, cfg.Until = key.ByID, time.Now().Add(time.Hour)
		stop := start(t, cfg)
		time.Sleep(time.Minute)
		synctest.Wait()
		if all, err := db.Store().Workers(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		stop()
	})
}

// silentReports stores reports and does not respond.
type silentReports struct{ *memory.Store }

func (s silentReports) ReportWorker(ctx context.Context, r driver.WorkerReport) error {
	if err := s.Store.ReportWorker(ctx, r); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestWorkersEndDuringTheFirstReport: a report whose response is missing may have been stored, so it is removed too.
func TestWorkersEndDuringTheFirstReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		cfg := orders(db, silentReports{db.Store()})
		stop := start(t, cfg)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if all, err := db.Store().Workers(t.Context()); err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v; want the report that is written", all, err)
		}
		stop()
		if all, err := db.Store().Workers(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v; want none after its end", all, err)
		}
	})
}
