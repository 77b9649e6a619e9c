package ops

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// silentAfter is how long after its last report a worker counts as silent: three reports are missing.
const silentAfter = 35 * time.Second

// Worker is the latest report of a worker.
type Worker struct {
	driver.WorkerReport

	// Silent: it has not reported for 35 seconds, so it was killed, hangs, or cannot reach the store.
	Silent bool `json:"silent,omitempty"`
}

// Difference is a setting that workers of one queue do not share: as the queue delivers a message to any of them, a copy of it
// can take effect again.
type Difference struct {
	Queue   string `json:"queue"`
	Setting string `json:"setting"`
	// Workers are the names of the workers with each value.
	Workers map[string][]string `json:"workers"`
}

func (d Difference) String() string {
	var parts []string
	for _, value := range slices.Sorted(maps.Keys(d.Workers)) {
		parts = append(parts, fmt.Sprintf("%q (%s)", value, strings.Join(d.Workers[value], ", ")))
	}
	return fmt.Sprintf("workers of queue %s differ in %s: %s; stop those that are wrong", d.Queue, d.Setting, strings.Join(parts, ", "))
}

// Workers lists the workers of a queue ("" = of all) that report to a store, and the settings in which those of one queue differ
// that are not silent. The error wraps [driver.ErrUnsupported] if the store keeps no reports.
func Workers(ctx context.Context, s driver.Store, queue string) (all []Worker, differ []Difference, err error) {
	log, ok := driver.As[driver.WorkerLog](s)
	if !ok {
		return nil, nil, fmt.Errorf("store %s keeps no reports of workers: %w", s.Features().Name, driver.ErrUnsupported)
	}
	reports, err := log.Workers(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range reports {
		if queue == "" || queue == r.Queue {
			all = append(all, Worker{r, time.Since(r.Seen) > silentAfter})
		}
	}
	return all, differences(all), nil
}

// differences compares workers, which are in the order of their queues.
func differences(all []Worker) (out []Difference) {
	all = slices.DeleteFunc(slices.Clone(all), func(w Worker) bool { return w.Silent })
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].Queue == all[0].Queue {
			n++
		}
		names := map[string]bool{"consumer": true}
		for _, w := range all[:n] {
			for name := range w.Settings {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			d := Difference{Queue: all[0].Queue, Setting: name, Workers: map[string][]string{}}
			for _, w := range all[:n] {
				value := w.Settings[name]
				if name == "consumer" {
					value = w.Consumer
				}
				d.Workers[value] = append(d.Workers[value], w.Name)
			}
			if len(d.Workers) > 1 {
				out = append(out, d)
			}
		}
		all = all[n:]
	}
	return out
}

// holder names the worker that reported the claim of a record; "" if none did.
func holder(ctx context.Context, s driver.Store, r driver.Record) (string, error) {
	if r.State != driver.InProgress {
		return "", nil
	}
	all, _, err := Workers(ctx, s, "")
	for _, w := range all {
		if w.Consumer == r.Key.Consumer && slices.ContainsFunc(w.Holds, func(h driver.WorkerHold) bool {
			return h.Tenant == r.Key.Tenant && h.Key == r.Key.Raw && h.Token == r.Token
		}) {
			return w.Name, err
		}
	}
	if errors.Is(err, driver.ErrUnsupported) {
		err = nil
	}
	return "", err
}
