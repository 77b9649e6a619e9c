package driver

import (
	"cmp"
	"context"
	"time"
)

// Limits of worker reports: how many keys one lists, and for how long a [WorkerLog] keeps the report of a worker that
// disappeared.
const (
	MaxWorkerHolds = 100
	WorkerKept     = 24 * time.Hour
)

// WorkerReport is what a running worker reports about itself. Stores keep it as JSON.
type WorkerReport struct {
	// ID is unique: one process may run several consumers. Name is host and process id, as in logs.
	ID       string `json:"id"`
	Name     string `json:"name"`
	Queue    string `json:"queue"`
	Consumer string `json:"consumer"`
	// Version is that of the program.
	Version string    `json:"version,omitempty"`
	Started time.Time `json:"started"` // by the worker's clock
	Seen    time.Time `json:"seen"`
	// Settings are those that all workers of a consumer must share, by name.
	Settings map[string]string `json:"settings,omitempty"`
	// Guarantee is the line that it logged at its start. Window is how long it keeps records at least, Horizon how late it expects
	// a copy of a message; 0 = no bound is known.
	Guarantee string        `json:"guarantee,omitempty"`
	Window    time.Duration `json:"window_ns,omitempty"`
	Horizon   time.Duration `json:"horizon_ns,omitempty"`
	// Running counts handlers, InFlight deliveries in flight. Paused is why nothing is started or fetched; "" = it is not paused.
	Running  int    `json:"running"`
	InFlight int    `json:"in_flight"`
	Paused   string `json:"paused,omitempty"`
	// Holds are the keys that it has claimed, MaxWorkerHolds at most, those that arrived first.
	Holds []WorkerHold `json:"holds,omitempty"`
}

// CompareWorkers orders reports as [WorkerLog] lists them: by queue, consumer and ID.
func CompareWorkers(a, b WorkerReport) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Consumer, b.Consumer), cmp.Compare(a.ID, b.ID))
}

// WorkerHold is a key that a worker has claimed.
type WorkerHold struct {
	Tenant  string    `json:"tenant,omitempty"`
	Key     string    `json:"key"`
	Token   uint64    `json:"token"`
	Attempt int       `json:"attempt"`
	Since   time.Time `json:"since"` // when its run began; until then, when it arrived
}

// WorkerLog is an optional interface of stores: the latest report of each worker. Consumers write to it in the background, every
// ten seconds at most and outside of every transaction. It is best effort, and no decision depends on it.
type WorkerLog interface {
	// ReportWorker stores a report in place of the worker's earlier one. It removes reports that are older than WorkerKept
	// by the report's time.
	ReportWorker(ctx context.Context, r WorkerReport) error
	// ForgetWorker removes the report of a worker that has ended. If there is none, it does nothing.
	ForgetWorker(ctx context.Context, id string) error
	// Workers returns all reports, in the order of [CompareWorkers].
	Workers(ctx context.Context) ([]WorkerReport, error)
}
