package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
)

// fault is one thing that goes wrong.
type fault uint8

const (
	kill fault = iota
	freeze
	stopServer
	killServer
)

// schedule is the faults in the order of a seed. Each is due when its share of the messages is sent, so that a slow
// machine suffers as many as a fast one.
func schedule(c config, rng *rand.Rand) []fault {
	var out []fault
	for range c.kills {
		out = append(out, kill)
	}
	for range c.freezes {
		out = append(out, freeze)
	}
	for i := range c.restarts {
		out = append(out, stopServer+fault(i%2))
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// faults commits all faults and ends when their consequences have: every worker runs, the server too.
func (k *campaign) faults(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(k.seed, 0x6661756c74))
	plan := schedule(k.config, rng)
	thawed := make(chan error, len(plan))
	frozen := 0
	for i, f := range plan {
		due := int64(k.messages) * int64(i+1) / int64(len(plan)+1)
		for k.sent.Load() < due {
			if ctx.Err() != nil {
				return errors.Join(context.Cause(ctx), waitAll(thawed, frozen))
			}
			crew.Sleep(ctx, time.Millisecond)
		}
		// Somewhere in the work, not at the start of a batch of the sender.
		crew.Sleep(ctx, upTo(rng, 30*time.Millisecond))
		err := k.fleet.hint()
		if err != nil {
			return errors.Join(err, waitAll(thawed, frozen))
		}
		switch f {
		case kill:
			err = k.fleet.replace(rng)
			k.r.Kills++
		case freeze:
			var ok bool
			if ok, err = k.fleet.freeze(ctx, rng, thawed); ok {
				frozen++
				k.r.Freezes++
			}
		case stopServer, killServer:
			err = k.restart(ctx, f, upTo(rng, 500*time.Millisecond))
		}
		if err != nil {
			return errors.Join(err, waitAll(thawed, frozen))
		}
	}
	return waitAll(thawed, frozen)
}

func waitAll(ends <-chan error, n int) (err error) {
	for range n {
		err = errors.Join(err, <-ends)
	}
	return err
}

// restart takes the server down without a checkpoint, keeps it down for a while, and waits for its recovery.
func (k *campaign) restart(ctx context.Context, f fault, down time.Duration) error {
	var err error
	if f == stopServer {
		k.r.Stops++
		err = k.server.Stop(server.Immediate)
	} else {
		k.r.ServerKills++
		err = k.server.Kill()
	}
	if err != nil {
		return err
	}
	crew.Sleep(ctx, down)
	if err := k.server.Start(ctx); err != nil {
		return fmt.Errorf("start the server again: %w", err)
	}
	return nil
}

// upTo is a random time below d.
func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
