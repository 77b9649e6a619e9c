package driver

import (
	"context"
	"time"
)

// Limits of worker reports: how many keys one lists, and for how long a [WorkerLog] keeps the report of a worker that
// disappeared.
const (
	MaxWorkerHolds = 100
	WorkerKept     = 24 * time.Hour
)

// WorkerReport is what a running worker reports about itself.
type WorkerReport struct {
	// ID is unique: one process may run several consumers. Name is host and process id, as in logs.
	ID, Name        string
	Queue, Consumer string
	// Version is that of the program.
	Version       string
	Started, Seen time.Time // by the worker's clock
	// Settings are those that all workers of a consumer must share, by name.
	Settings map[string]string
	// Running counts handlers, InFlight deliveries in flight. Paused is why nothing is started or fetched; "" = it is not paused.
	Running, InFlight int
	Paused            string
	// Holds are the keys that it has claimed, MaxWorkerHolds at most, those that arrived first.
	Holds []WorkerHold
}

// WorkerHold is a key that a worker has claimed.
type WorkerHold struct {
	Tenant, Key string
	Token       uint64
	Attempt     int
	Since       time.Time // when its run began; until then, when it arrived
}

// WorkerLog is an optional interface of stores: the latest report of each worker. Consumers write to it in the background, every
// ten seconds at most and outside of every transaction. It is best effort, and no decision depends on it.
type WorkerLog interface {
	// ReportWorker stores a report in place of the worker's earlier one. It removes reports that are older than WorkerKept
	// by the report's time.
	ReportWorker(ctx context.Context, r WorkerReport) error
	// ForgetWorker removes the report of a worker that has ended. If there is none, it does nothing.
	ForgetWorker(ctx context.Context, id string) error
	// Workers returns all reports, in the order of queue, consumer and ID.
	Workers(ctx context.Context) ([]WorkerReport, error)
}
