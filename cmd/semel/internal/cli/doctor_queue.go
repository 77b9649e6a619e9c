package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
	"github.com/semel-dev/semel/ops"
)

// sqsFlags are facts about a queue of SQS that the queue does not know.
type sqsFlags struct {
	lambda, window time.Duration
	identified     bool
}

// sqs compares the worker's settings with those of the live queue, where that is one of SQS.
func (x *inspection) sqs(ctx context.Context, set *open.Set, f sqsFlags) error {
	live, err := set.Live(ctx, "queue", x.w.Queue)
	if err != nil || live == nil {
		return err
	}
	if f.lambda > 0 {
		x.lambda(live, f.lambda, f.window)
	}
	return nil
}

// receives is after how many receives the queue itself moves a message away; 0 = never, or nothing is known of it.
func receives(q driver.Queue) int {
	if sqs, ok := q.(interface{ MaxReceive() int }); ok {
		return sqs.MaxReceive()
	}
	return 0
}

// redriveLimit is law 6: duplicates that are put off count towards the limit, too.
func (x *inspection) redriveLimit() {
	longest, have := x.w.MaxRuntime, x.receives
	if x.w.Timeout > 0 {
		longest = x.w.Timeout
	}
	need := ops.Receives(x.w.MaxAttempts, time.Duration(longest), x.w.Lease())
	hint := "a shorter --max-runtime, fewer --max-attempts or a longer --visibility: maxReceiveCount is 1000 at most"
	if need <= 1000 {
		hint = fmt.Sprintf("maxReceiveCount %d; a shorter --max-runtime or a longer --visibility needs less", need)
	}
	switch {
	case have == 0:
	case have < need:
		x.Add(ops.LevelDanger, "redrive", hint,
			"the queue moves a message away after %d receives, and %d attempts of runs of up to %s may take %d: healthy messages whose key "+
				"is running would end up in the dead-letter queue", have, x.w.MaxAttempts, longest, need)
	default:
		x.Add(ops.LevelOK, "redrive", "", "the queue moves a message away after %d receives; %d attempts of runs of up to %s take %d at most",
			have, x.w.MaxAttempts, longest, need)
	}
}

// brokerID refuses keys that a redrive by the provider changes: to SQS every redriven message is a new one.
//
// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-configure-dead-letter-queue-redrive.html
func (x *inspection) brokerID() {
	lent := x.w.OnMissingKey == "id" && x.w.Key != "id"
	if x.w.Key != "id" && !lent || !x.q.Redrives {
		return
	}
	if x.identified {
		x.Add(ops.LevelOK, "identity", "", "producers give every message an identity of its own, as you say: a redrive keeps it")
		return
	}
	if lent {
		x.Add(ops.LevelDanger, "identity", "--on-missing-key fail; or have all producers set idempotency-key (semel send does), and set --producers-set-id",
			"the key is the broker's id where a message has none of its own, and the queue's redrive gives a message a new one: what was done would be done again")
		return
	}
	x.Add(ops.LevelDanger, "identity", "--key json:/order_id or another field; or have all producers set idempotency-key (semel send does), and set --producers-set-id",
		"the key is the broker's id where a message has no other, and the queue's redrive gives a message a new one: what was done would be done again")
}

// deadLetterRetention reports to a worker what doctor finds when it examines the queue.
func (x *inspection) deadLetterRetention() {
	if kept := ops.DeadLettersKept(x.q); x.q.Redrives && kept > 0 && kept < x.q.Retention && !x.q.Orders {
		x.Facts = append(x.Facts, open.DeadLettersExpire("the dead-letter queue", kept, x.q.Retention))
	}
}

// lambda checks the queue's settings for a function that the queue calls.
//
// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
func (x *inspection) lambda(live *ops.LiveQueue, timeout, window time.Duration) {
	have, want := live.Visibility, 6*timeout+window
	switch {
	case have < timeout:
		x.Add(ops.LevelDanger, "lambda", "VisibilityTimeout "+words.About(want),
			"the queue's visibility is %s and the function may run for %s: Lambda refuses such a mapping, and messages would come again while they are worked on",
			words.About(have), words.About(timeout))
	case have < want:
		x.Add(ops.LevelWarning, "lambda", "VisibilityTimeout "+words.About(want),
			"the queue's visibility is %s; six times the function's time limit and the batching window are %s, so that throttled calls can be repeated",
			words.About(have), words.About(want))
	default:
		x.Add(ops.LevelOK, "lambda", "", "the queue's visibility of %s covers six times the function's time limit (%s)", words.About(have), words.About(timeout))
	}
	if n := live.MaxReceives; n > 0 && n < 5 {
		x.Add(ops.LevelWarning, "lambda", "maxReceiveCount 5 at the very least", "the queue moves a message away after %d receives, and receives that Lambda was throttled for count as well", n)
	}
}

// retention is law 10: records outlive every copy of their message. What the queue knows of that New checks, too; with
// --horizon a person says what the queue cannot know.
func (x *inspection) retention() {
	producers := time.Duration(x.w.Producers)
	late := ops.LatenessOf(x.q, producers)
	need, why := late.Horizon(), late.Parts()
	kept, window := x.w.Retention.Shown(need), x.w.Retention.Window(need)
	if x.horizon > need {
		need, why = x.horizon, "--horizon"
	}
	if l, ok := ops.LatenessAdvised(x.q, producers); ok {
		why += "; " + words.Duration(l.Horizon()) + " once the dead-letter queue keeps messages for 14d"
	}
	switch {
	case need > 0 && window < need:
		x.Add(ops.LevelDanger, "retention", "--retention "+words.Duration(need), "records are kept for %s, duplicates come within %s (%s): a late one would run again",
			kept, words.Duration(need), why)
	case need > 0:
		x.Add(ops.LevelOK, "retention", "", "records are kept for %s, duplicates come within %s (%s)", kept, words.Duration(need), why)
	case window < 24*time.Hour:
		x.Add(ops.LevelWarning, "retention", "--retention "+config.Duration(ops.RetentionFor(0)).String(),
			"records are kept for %s: a duplicate that comes later runs again", kept)
	default:
		x.Add(ops.LevelOK, "retention", "", "records are kept for %s; this queue does not limit how late duplicates come: give --horizon to "+
			"compare", kept)
	}
}
