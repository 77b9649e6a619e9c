package campaign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
)

// outside is what handlers call besides the database: one service that deduplicates on the effect key, and one that counts.
// It also tracks which workers believe that they hold a key.
type outside struct {
	w       *world
	mu      sync.Mutex
	byKey   map[string]map[string]bool // effect keys that arrived, by key
	plain   map[string]int
	runs    int
	running map[*activeRun]bool
}

// activeRun is a handler that has not returned.
type activeRun struct {
	p   *process
	a   *semel.Attempt
	ctx context.Context
}

func newOutside(w *world) *outside {
	return &outside{w: w, byKey: map[string]map[string]bool{}, plain: map[string]int{}, running: map[*activeRun]bool{}}
}

// begin enters a run, and checks that no other worker believes that it holds the key, by the deadlines of both (I5).
func (o *outside) begin(ctx context.Context, p *process, a *semel.Attempt) (end func()) {
	r := &activeRun{p, a, ctx}
	now := time.Now()
	o.mu.Lock()
	var other *activeRun
	for x := range o.running {
		if x.a.Key == a.Key && x.ctx.Err() == nil && now.Before(x.a.LeaseUntil()) && !x.p.dead.Load() {
			other = x
		}
	}
	o.running[r] = true
	o.runs++
	o.mu.Unlock()
	if other != nil && now.Before(a.LeaseUntil()) {
		o.w.fail("%s and %s hold key %s at the same time, with tokens %d and %d (I5)", other.p.name, p.name, a.Key.Raw, other.a.Token, a.Token)
	}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.running, r)
	}
}

// keyed is an effect with a key: a repetition has no effect.
func (o *outside) keyed(key, effectKey string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byKey[key] == nil {
		o.byKey[key] = map[string]bool{}
	}
	o.byKey[key][effectKey] = true
}

func (o *outside) count(key string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.plain[key]++
}

var errFailed = errors.New("failed on purpose")

// handler is the handler of a process.
func (p *process) handler() semel.Handler {
	if p.w.effects == collected {
		return semel.InTx(func(ctx context.Context, tx *dynamodb.Writes, a *semel.Attempt) error {
			return p.handle(ctx, a, func() {
				tx.Add(ledger, map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: a.Key.Raw}}, "n", 1)
				tx.Put(types.Put{TableName: aws.String(ledger), Item: map[string]types.AttributeValue{
					"id": &types.AttributeValueMemberS{Value: "result of " + a.Key.Raw},
					"by": &types.AttributeValueMemberS{Value: fmt.Sprint("run ", a.Token)},
				}})
			})
		})
	}
	return semel.HandlerFunc(func(ctx context.Context, a *semel.Attempt) error {
		return p.handle(ctx, a, func() {
			if p.w.effects == keyed {
				p.w.out.keyed(a.Key.Raw, a.EffectKey(""))
			} else {
				p.w.out.count(a.Key.Raw)
			}
		})
	})
}

// handle is one run: it takes some time, may fail before or after its effect, and may ignore its cancellation.
func (p *process) handle(ctx context.Context, a *semel.Attempt, effect func()) error {
	defer p.w.out.begin(ctx, p, a)()
	r := p.w.chance(fmt.Sprintf("run %s %d %s", a.Key.Raw, a.Number, p.name))
	took := time.Duration(r.Float64() * r.Float64() * r.Float64() * float64(p.w.longest))
	stubborn := p.w.hangs && r.IntN(4) == 0
	fails := r.Float64() < p.w.failing
	how := r.IntN(8)
	t := time.NewTimer(took)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		if !stubborn {
			return semel.NotApplied(context.Cause(ctx))
		}
		<-t.C
	}
	if p.dead.Load() {
		return errDead // the process is dead
	}
	switch {
	case fails && how == 0:
		return semel.Permanent(errFailed)
	case fails && how < 3:
		return semel.NotApplied(errFailed)
	case fails && how < 5:
		return errFailed
	}
	a.SetResult(fmt.Append(nil, "run ", a.Token))
	effect()
	if fails {
		return errFailed // after the effect: the outcome is unknown
	}
	return nil
}
