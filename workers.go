package semel

import (
	"context"
	"crypto/rand"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// A worker reports to its store once a second after its start, then at intervals. A short run writes nothing.
const (
	reportFirst   = time.Second
	reportEvery   = 10 * time.Second
	reportTimeout = 2 * time.Second
)

// workerReports writes what a consumer does to the store, in the background (driver.WorkerLog). Nothing waits for it.
type workerReports struct {
	to     driver.WorkerLog
	report driver.WorkerReport
	end    context.CancelFunc
	due    chan struct{}            // the loop is asked for a snapshot
	ready  chan driver.WorkerReport // one from the loop
}

// newWorkerReports returns nil if the store keeps no reports, or this is one of many short invocations.
func newWorkerReports(c *Consumer, began time.Time) *workerReports {
	to, ok := driver.As[driver.WorkerLog](c.cfg.Store)
	if !ok || !c.cfg.Until.IsZero() {
		return nil
	}
	settings := map[string]string{"takeover": c.cfg.Takeover.String(), "retention": driver.DurationText(c.cfg.Retention)}
	maps.Copy(settings, c.cfg.Settings)
	name := workerName()
	window, horizon := c.Window()
	return &workerReports{
		to: to, due: make(chan struct{}, 1), ready: make(chan driver.WorkerReport, 1),
		report: driver.WorkerReport{
			ID: name + ":" + rand.Text()[:8], Name: name, Queue: c.queue.Name, Consumer: c.cfg.Consumer, Version: programVersion(),
			Started: began.UTC().Truncate(time.Microsecond), Settings: settings,
			Guarantee: c.Guarantee().String(), Window: window, Horizon: horizon,
		},
	}
}

// programVersion is the version of the program's main module.
func programVersion() string {
	if b, ok := debug.ReadBuildInfo(); ok {
		return b.Main.Version
	}
	return ""
}

// start reports until close or the end of ctx, then removes the report. wake makes the loop call offer.
func (w *workerReports) start(ctx context.Context, g *sync.WaitGroup, wake func()) {
	if w == nil {
		return
	}
	ctx, w.end = context.WithCancel(ctx)
	g.Go(func() { w.run(ctx, wake) })
}

// close makes run end.
func (w *workerReports) close() {
	if w != nil {
		w.end()
	}
}

func (w *workerReports) run(ctx context.Context, wake func()) {
	tried := false
	for pause := reportFirst; ; pause = reportEvery {
		select {
		case <-ctx.Done():
			if tried { // a report without a response may have been stored
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportTimeout)
				defer cancel()
				_ = w.to.ForgetWorker(ctx, w.report.ID) // else it is forgotten later
			}
			return
		case <-time.After(pause):
		}
		w.due <- struct{}{}
		wake()
		select {
		case <-ctx.Done():
		case r := <-w.ready:
			tried = true
			limited, cancel := context.WithTimeout(ctx, reportTimeout)
			_ = w.to.ReportWorker(limited, r) // the next one follows
			cancel()
		}
	}
}

// offer hands a snapshot of the machine to run, if run asked for one. The loop calls it.
func (w *workerReports) offer(r *runner, load *machine.Load) {
	if w == nil {
		return
	}
	select {
	case <-w.due:
	default:
		return
	}
	one := w.report
	one.Seen = time.Now().UTC().Truncate(time.Microsecond)
	one.Running, one.InFlight, one.Paused = load.Running, load.InFlight, load.Reason
	for _, h := range r.m.Held(driver.MaxWorkerHolds) {
		one.Holds = append(one.Holds, driver.WorkerHold{
			Tenant: h.Hold.Key.Tenant, Key: h.Hold.Key.Raw, Token: h.Hold.Token, Attempt: h.Attempt,
			Since: r.began.Add(h.Since).UTC().Truncate(time.Microsecond),
		})
	}
	w.ready <- one
}
