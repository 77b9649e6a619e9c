package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// theKey is the key of all messages of a run with SameKey.
const theKey = "bench-same-key"

// Run measures once. It blocks until the queue is empty and the workers have ended; when ctx ends, they are stopped, and
// the error is its cause. A result whose checks say no is no error: see [Result.OK].
func Run(ctx context.Context, o Options) (res Result, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	setup, err := place.NewSetup(o.Where, 1)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, setup.Close()) }()
	dir, err := os.MkdirTemp("", "semel-bench-")
	if err != nil {
		return res, fmt.Errorf("make a folder for the run: %w", err)
	}
	keep := o.Keep
	defer func() {
		if !keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		if !o.Keep {
			err = errors.Join(err, setup.Remove(ctx))
		}
	}()
	urls, err := setup.Make(ctx, "bench", dir, o.Visibility)
	if err != nil {
		return res, err
	}
	b := &bench{Options: o, dir: dir, urls: urls}
	if b.place, err = place.Open(ctx, urls, o.Visibility); err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, b.place.Close()) }()
	if err := b.measure(ctx); err != nil {
		return res, err
	}
	if res, err = b.count(ctx); err != nil {
		return res, err
	}
	res.Place = setup.String()
	if keep = o.Keep || res.Errors.LogLines > 0; keep {
		res.Kept = dir
	}
	return res, nil
}

// bench is one run.
type bench struct {
	Options
	dir   string
	urls  place.URLs
	place *place.Place

	crew  *crew
	ids   []string             // in sending order
	sent  map[string]time.Time // when a message's batch was handed to the queue
	began time.Time
	// sending is how long it took to send all of them.
	sending time.Duration
}

// measure starts the workers, sends, waits until everything is done, and ends the workers.
func (b *bench) measure(ctx context.Context) (err error) {
	b.crew = newCrew(b)
	defer func() {
		if err != nil {
			b.crew.abandon()
		}
	}()
	b.Progress(fmt.Sprintf("starting %d workers", b.Workers))
	if err := b.crew.start(ctx, b.Workers); err != nil {
		return err
	}
	if err := b.send(ctx); err != nil {
		return err
	}
	if err := b.drain(ctx); err != nil {
		return err
	}
	return b.crew.stop()
}

// batch is how many messages are sent with one call, where the queue takes as many.
const batch = 100

func (b *bench) send(ctx context.Context) error {
	size := batch
	if most := b.place.Queue.Features().MaxBatch; most > 0 {
		size = min(size, most)
	}
	if b.Rate > 0 {
		size = min(size, max(1, int(b.Rate/10))) // small batches keep the rate even
	}
	b.sent = make(map[string]time.Time, b.N)
	b.began = time.Now()
	for first := 0; first < b.N; first += size {
		if err := b.waitFor(ctx, first); err != nil {
			return err
		}
		batch := b.messages(first, min(b.N, first+size))
		now := time.Now()
		for _, m := range batch {
			b.ids, b.sent[m.ID] = append(b.ids, m.ID), now
		}
		if err := b.place.Queue.Send(ctx, batch...); err != nil {
			return fmt.Errorf("send message %d and those after it: %w", first+1, err)
		}
		b.Progress(fmt.Sprintf("sent %d of %d", len(b.ids), b.N))
	}
	b.sending = time.Since(b.began)
	return nil
}

// waitFor waits until message number i is due, and looks after the workers meanwhile.
func (b *bench) waitFor(ctx context.Context, i int) error {
	due := time.Now()
	if b.Rate > 0 {
		due = b.began.Add(time.Duration(float64(i) / b.Rate * float64(time.Second)))
	}
	return b.crew.wait(ctx, time.Until(due))
}

func (b *bench) messages(from, to int) []driver.Message {
	out := make([]driver.Message, 0, to-from)
	for i := from; i < to; i++ {
		key := fmt.Sprintf("bench-%07d", i+1)
		if b.SameKey {
			key = theKey
		}
		body, _ := json.Marshal(map[string]string{"id": key}) // two strings
		out = append(out, driver.Message{
			ID: fmt.Sprintf("m-%07d", i+1), Body: body,
			Headers: map[string]string{place.KeyHeader: key, "content-type": "application/json"},
		})
	}
	return out
}

// drain waits until the queue is empty. One that counts approximately has to look empty for a while.
func (b *bench) drain(ctx context.Context) error {
	var since time.Time
	for end := time.Now().Add(b.Timeout); ; {
		st, err := b.place.Queue.Stats(ctx)
		if err != nil {
			return fmt.Errorf("look at the queue: %w", err)
		}
		left := st.Visible + st.InFlight + st.Delayed
		now := time.Now()
		switch {
		case left > 0:
			since = time.Time{}
		case since.IsZero():
			since = now
		}
		if !since.IsZero() && now.Sub(since) >= b.place.Quiet {
			return nil
		}
		if now.After(end) {
			return fmt.Errorf("%s not done within %s: visible %d, in flight %d, delayed %d", words.Count(left, "message"), b.Timeout, st.Visible,
				st.InFlight, st.Delayed)
		}
		b.Progress(fmt.Sprintf("sent %d, %d left", b.N, left))
		if err := b.crew.wait(ctx, b.place.PollInterval); err != nil {
			return err
		}
	}
}
