package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/semel-dev/semel/adapters/postgres"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
)

// errStuck ends a campaign whose workers do nothing any more.
var errStuck = errors.New("the workers are stuck")

// sendBatch is how many messages one Send carries.
const sendBatch = 500

// result is the JSON line. Times are in seconds.
type result struct {
	Held bool   `json:"held"`
	Seed uint64 `json:"seed"`
	crew.Verdict
	Messages    int         `json:"messages"`
	SendsFailed int         `json:"sends_failed"` // each is repeated, and may have made duplicates of a whole batch
	Modes       []crew.Mode `json:"modes"`
	Workers     int         `json:"workers"`
	Kills       int         `json:"kills"`
	Freezes     int         `json:"freezes"`
	Stops       int         `json:"immediate_stops"`
	ServerKills int         `json:"server_kills"`
	// LeftAtLastFault is what the workers still had to do when the faults ended; Drain, how long it took.
	LeftAtLastFault int     `json:"left_at_last_fault"`
	Drain           float64 `json:"drain_s"`
	Elapsed         float64 `json:"elapsed_s"`
	PerSecond       float64 `json:"messages_per_s"`
	// What the workers said of themselves. Those that were killed did not say their last.
	TakenOver int64 `json:"taken_over"`
	Fenced    int64 `json:"fenced"`
	Paused    int64 `json:"paused"`
	// Problems are workers that ended by themselves or did not drain.
	Problems []string `json:"problems,omitempty"`
}

func (r *result) words() string {
	verdict := "HELD"
	if !r.Held {
		verdict = "NOT HELD"
	}
	text := fmt.Sprintf("%s: %v\n%d messages in %.1f s (%.0f/s), %d workers %v; %d killed, %d frozen past their leases, server "+
		"stopped at once %d times, killed %d times\n%d messages were left when the faults ended, and done %.1f s later; "+
		"%d runs taken over, %d attempts fenced", verdict, r.Verdict, r.Messages, r.Elapsed, r.PerSecond, r.Workers, r.Modes,
		r.Kills, r.Freezes, r.Stops, r.ServerKills, r.LeftAtLastFault, r.Drain, r.TakenOver, r.Fenced)
	const most = 5
	for i, p := range r.Problems {
		if i == most {
			return text + fmt.Sprintf("\nand %d problems more", len(r.Problems)-most)
		}
		text += "\nproblem: " + p
	}
	return text
}

// campaign is one run.
type campaign struct {
	config
	r      result
	server *server.Server
	db     *postgres.DB // the sender's
	fleet  *fleet
	sent   atomic.Int64
}

// run runs a campaign. An error says that it could not be run, not that the verdict is bad.
func run(ctx context.Context, c config) (result, error) {
	s, err := server.PostgreSQL(ctx, server.Options{})
	if err != nil {
		return result{}, err
	}
	defer s.Close()
	if err := crew.Prepare(ctx, s.URL()); err != nil {
		return result{}, err
	}
	db, err := postgres.Open(ctx, s.URL(), postgres.Options{MaxConns: 4})
	if err != nil {
		return result{}, err
	}
	defer db.Close()
	k := &campaign{config: c, server: s, db: db, r: result{
		Seed: c.seed, Messages: c.messages, Modes: c.modes, Workers: c.workers,
	}}
	k.fleet = &fleet{url: s.URL(), config: c}
	defer k.fleet.killAll()
	err = k.run(ctx)
	return k.r, err
}

// run has three parts: faults while messages are sent, the drain, the verdict.
func (k *campaign) run(ctx context.Context) error {
	if err := k.fleet.start(); err != nil {
		return err
	}
	begin := time.Now()
	faults := make(chan error, 1)
	sending, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	go func() {
		err := k.faults(sending)
		if err != nil {
			abort(err)
		}
		faults <- err
	}()
	keys, err := k.send(sending)
	if err != nil {
		abort(err)
	}
	if err := errors.Join(<-faults, err); err != nil {
		return err
	}
	if err := k.drain(ctx); err != nil {
		return err
	}
	k.r.Elapsed = time.Since(begin).Seconds()
	k.r.PerSecond = float64(k.messages) / k.r.Elapsed
	k.r.Problems = k.fleet.stop()
	sum := k.fleet.sum()
	k.r.TakenOver, k.r.Fenced, k.r.Paused = sum.TakenOver, sum.Fenced, sum.Paused
	if k.r.Verdict, err = crew.Judge(ctx, k.server.URL(), keys); err != nil {
		return err
	}
	k.r.Held = k.r.Verdict.Held() && len(k.r.Problems) == 0
	return nil
}

// send sends all messages, never further ahead of the workers than the backlog, and returns how many keys they have.
func (k *campaign) send(ctx context.Context) (keys int, err error) {
	q := k.db.Queue(crew.Queue)
	ms := crew.NewMessages(k.seed, k.duplicates)
	room := k.backlog
	for sent := 0; sent < k.messages; {
		if room <= 0 {
			if room, err = k.room(ctx); err != nil {
				return 0, err
			}
			continue
		}
		n := min(sendBatch, k.messages-sent)
		failed, err := crew.Send(ctx, q, ms.Next(n))
		if err != nil {
			return 0, fmt.Errorf("send: %w", errors.Join(err, context.Cause(ctx)))
		}
		k.r.SendsFailed += failed
		sent += n
		room -= n
		k.sent.Store(int64(sent))
	}
	return ms.Keys, nil
}

// room waits until the workers have made progress and returns how far the sender may go.
func (k *campaign) room(ctx context.Context) (int, error) {
	for deadline := time.Now().Add(k.timeout); ; {
		left, err := crew.Left(ctx, k.db) // fails while the server is down
		if room := k.backlog - left; err == nil && room > 0 {
			return room, nil
		}
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case time.Now().After(deadline):
			return 0, fmt.Errorf("%d messages are in the queue and none was done in %v; problems: %q: %w",
				left, k.timeout, k.fleet.stop(), errors.Join(errStuck, err))
		}
		crew.Sleep(ctx, 20*time.Millisecond)
	}
}

// drain waits until the queue is empty. A timeout is no error: the verdict counts the messages that are left.
func (k *campaign) drain(ctx context.Context) error {
	begin, moved, said := time.Now(), time.Now(), time.Now()
	last := -1
	for ctx.Err() == nil {
		left, err := crew.Left(ctx, k.db)
		if err != nil {
			k.say("count the messages: %v", err)
			left = last
		}
		if last < 0 {
			k.r.LeftAtLastFault = left
		}
		if left != last {
			last, moved = left, time.Now()
		}
		if time.Since(said) > 2*time.Second {
			said = time.Now()
			k.say("drain: %d messages left after %.1f s", left, time.Since(begin).Seconds())
		}
		if k.r.Drain = time.Since(begin).Seconds(); left == 0 {
			return nil
		}
		if time.Since(moved) > k.timeout {
			k.r.Problems = append(k.r.Problems, fmt.Sprintf("%d messages do not move", left))
			return nil
		}
		crew.Sleep(ctx, 20*time.Millisecond)
	}
	return ctx.Err()
}
