package rowstore

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// Workers keeps the reports of workers in a table semel_worker: id, seen, queue, consumer (text), report (bytes, JSON). A store
// embeds it beside [Store]. See [driver.WorkerLog].
type Workers struct{ db DB }

// NewWorkers returns the reports of workers on db.
func NewWorkers(db DB) *Workers { return &Workers{db} }

var _ driver.WorkerLog = (*Workers)(nil)

// ReportWorker stores a report in place of the worker's earlier one. See [driver.WorkerLog].
func (w *Workers) ReportWorker(ctx context.Context, r driver.WorkerReport) error {
	b, err := json.Marshal(&r)
	if err != nil {
		return fmt.Errorf("report worker: %w", err)
	}
	err = w.db.Atomic(ctx, 1, func(tx Tx) error {
		if err := tx.Exec("DELETE FROM semel_worker WHERE id = ? OR seen < ?", r.ID, r.Seen.Add(-driver.WorkerKept)); err != nil {
			return err
		}
		return tx.Exec("INSERT INTO semel_worker (id, seen, queue, consumer, report) VALUES (?, ?, ?, ?, ?)",
			r.ID, r.Seen, r.Queue, r.Consumer, b)
	})
	return Wrap(err, "report worker")
}

// ForgetWorker removes the report of a worker that has ended. See [driver.WorkerLog].
func (w *Workers) ForgetWorker(ctx context.Context, id string) error {
	err := w.db.Atomic(ctx, 1, func(tx Tx) error { return tx.Exec("DELETE FROM semel_worker WHERE id = ?", id) })
	return Wrap(err, "forget worker")
}

// Workers returns all reports. See [driver.WorkerLog].
func (w *Workers) Workers(ctx context.Context) (all []driver.WorkerReport, err error) {
	err = w.db.Read(ctx, func(r Row) error {
		var one driver.WorkerReport
		if err := json.Unmarshal(r.Bytes(0), &one); err != nil {
			return fmt.Errorf("%w: report of worker %q: %w", driver.ErrUnreadable, r.Text(1), err)
		}
		all = append(all, one)
		return nil
	}, "SELECT report, id FROM semel_worker ORDER BY queue, consumer, id")
	return all, Wrap(err, "list workers")
}
