// Package top is the operators' view of one queue in a terminal. What the queue and the store hold comes from the JSON of the
// console, what the workers do from their metrics.
package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/semel-dev/semel/ops"
)

// Overview is the first page of the console, as far as it is shown.
type Overview struct {
	Level    string   `json:"level"`
	Headline string   `json:"headline"`
	Next     []string `json:"next,omitempty"`
	// Stats is nil if the queue cannot count.
	Stats *struct {
		Visible  int64         `json:"visible"`
		InFlight int64         `json:"in_flight"`
		Delayed  int64         `json:"delayed"`
		Oldest   time.Duration `json:"oldest_ns"`
		AtLeast  bool          `json:"at_least,omitempty"`
	} `json:"stats,omitempty"`
	Uncertain   []json.RawMessage `json:"uncertain"`
	DeadLetters ops.Groups        `json:"dead_letters"`
}

// Worker is what one worker shows of one consumer.
type Worker struct {
	Address  string `json:"address"`
	Consumer string `json:"consumer,omitempty"`
	// Problem says why there are no figures.
	Problem    string             `json:"problem,omitempty"`
	Running    float64            `json:"running"`
	Slots      float64            `json:"slots"`
	Effects    float64            `json:"effects"`
	Deliveries float64            `json:"deliveries"`
	Duplicates map[string]float64 `json:"duplicates"` // by cause
	Paused     []string           `json:"paused,omitempty"`
	// Rate is effects in a second since the snapshot before; negative: there was none.
	Rate float64 `json:"-"`
}

// Snapshot is one look.
type Snapshot struct {
	At       time.Time `json:"at"`
	Queue    string    `json:"queue"`
	Overview Overview  `json:"overview"`
	Workers  []Worker  `json:"workers"`
}

// Source is where snapshots come from.
type Source struct {
	Queue string
	// Overview returns the console's first page.
	Overview func(context.Context) ([]byte, error)
	// Workers are the addresses of --listen of the workers: HOST:PORT or URLs.
	Workers []string

	last Snapshot
}

// timeout bounds the request to one worker.
const timeout = 2 * time.Second

// Look takes a snapshot. What cannot be read is in the snapshot as a problem.
func (s *Source) Look(ctx context.Context) Snapshot {
	now := Snapshot{At: time.Now(), Queue: s.Queue, Workers: []Worker{}}
	b, err := s.Overview(ctx)
	if err == nil {
		err = json.Unmarshal(b, &now.Overview)
	}
	if err != nil {
		now.Overview = Overview{Level: "bad", Headline: "The queue and the store could not be read: " + err.Error()}
	}
	found := make([][]Worker, len(s.Workers))
	done := make(chan struct{}, len(s.Workers))
	for i, address := range s.Workers {
		go func() {
			found[i] = scrape(ctx, address)
			done <- struct{}{}
		}()
	}
	for range s.Workers {
		<-done
	}
	now.Workers = append(now.Workers, slices.Concat(found...)...)
	for i := range now.Workers {
		now.Workers[i].Rate = s.last.rate(&now, &now.Workers[i])
	}
	s.last = now
	return now
}

// rate is how many effects a worker had in a second since this snapshot.
func (s *Snapshot) rate(now *Snapshot, w *Worker) float64 {
	for _, before := range s.Workers {
		if before.Address == w.Address && before.Consumer == w.Consumer && before.Problem == "" && before.Effects <= w.Effects {
			return (w.Effects - before.Effects) / now.At.Sub(s.At).Seconds()
		}
	}
	return -1
}

// scrape reads the metrics of a worker: one Worker for each of its consumers, or one with a problem.
func scrape(ctx context.Context, address string) []Worker {
	samples, err := metrics(ctx, address)
	if err != nil {
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			err = cause // the address is shown beside it
		}
		return []Worker{{Address: address, Problem: err.Error(), Rate: -1}}
	}
	all := map[string]*Worker{} // by consumer
	for _, m := range samples {
		consumer, value := string(m.Metric["consumer"]), float64(m.Value)
		w := all[consumer]
		if w == nil {
			w = &Worker{Address: address, Consumer: consumer, Duplicates: map[string]float64{}}
			all[consumer] = w
		}
		switch m.Metric[model.MetricNameLabel] {
		case "semel_inflight":
			w.Running = value
		case "semel_slots":
			w.Slots = value
		case "semel_effects_total":
			w.Effects = value
		case "semel_deliveries_total":
			w.Deliveries += value
		case "semel_duplicates_total":
			w.Duplicates[string(m.Metric["cause"])] += value
		case "semel_paused":
			if value > 0 {
				w.Paused = append(w.Paused, string(m.Metric["reason"]))
			}
		}
	}
	if len(all) == 0 {
		return []Worker{{Address: address, Problem: "shows no metrics of semel", Rate: -1}}
	}
	var workers []Worker
	for _, consumer := range slices.Sorted(maps.Keys(all)) {
		workers = append(workers, *all[consumer])
	}
	return workers
}

// metrics are the samples of semel's metrics of a worker.
func metrics(ctx context.Context, address string) (model.Vector, error) {
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("responded %s", res.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(http.MaxBytesReader(nil, res.Body, 16<<20))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	var all model.Vector
	for name, f := range families {
		if strings.HasPrefix(name, "semel_") {
			v, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{}, f)
			if err != nil {
				return nil, fmt.Errorf("read metric %s: %w", name, err)
			}
			all = append(all, v...)
		}
	}
	return all, nil
}
