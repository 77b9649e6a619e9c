package campaign

import (
	"context"
	"crypto/md5"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest"
)

// bug is a planted mistake.
type bug struct {
	name string
	// wants is a part of the violation that must be found.
	wants string
	tune  func(p *plan)
	wire  func(w *world, next http.RoundTripper) http.RoundTripper
	// config changes a process' consumer.
	config func(c *semel.Config)
	// stir is called from time to time.
	stir func(w *world)
}

// onWire plants a mistake on the wire.
func onWire(request func(x *exchange) object, reply func(x *exchange, status int, out object)) func(*world, http.RoundTripper) http.RoundTripper {
	return func(_ *world, next http.RoundTripper) http.RoundTripper {
		return &tamper{next: next, request: request, reply: reply}
	}
}

// only gives all seeds these effects.
func only(e effects) func(*plan) { return func(p *plan) { p.effects = e } }

// lateWrites makes most writes of an operation fail at first, and arrive when another worker may have the key.
func lateWrites(e effects, op string) func(*plan) {
	return func(p *plan) {
		p.effects, p.lateBy, p.longest = e, 3*time.Minute, 5*time.Second
		p.operations = map[string]awstest.Rates{op: {Late: .9}}
	}
}

// lateCompletions removes the condition of completing writes, and lets most of them arrive when another worker may have the
// key.
func lateCompletions(w *world, next http.RoundTripper) http.RoundTripper {
	r := w.chance("late completions")
	return &tamper{next: next, request: func(x *exchange) object {
		for _, u := range x.updates() {
			if !sets(u, "COMPLETED") {
				continue
			}
			unguard(u)
			w.mu.Lock()
			late, by := r.IntN(50) > 0, time.Duration(r.Int64N(int64(2*time.Minute)))
			w.mu.Unlock()
			if !late || time.Since(w.began) > w.until {
				continue
			}
			w.gone.Go(func() {
				time.Sleep(by)
				ctx, cancel := context.WithTimeout(context.WithoutCancel(x.r.Context()), time.Minute)
				defer cancel()
				x.r = x.r.WithContext(ctx)
				_, _, _ = x.send(x.op, x.in)
			})
			return lost
		}
		return nil
	}}
}

var bugs = []bug{
	{
		name: "a failed condition is taken for a duplicate (FM16)", wants: "lost",
		wire: onWire(nil, func(_ *exchange, status int, out object) {
			if item := failedItem(status, out); item != nil {
				item["state"] = object{"S": "COMPLETED"}
			}
		}),
	},
	{
		name: "a repeated claim of its own is taken for a duplicate (FM31)", wants: "lost",
		wire: onWire(nil, func(x *exchange, status int, out object) {
			item := failedItem(status, out)
			for _, u := range x.updates() {
				for _, v := range u["ExpressionAttributeValues"].(object) {
					if b := at(v.(object), "B"); b != nil && b == at(item, "nonce", "B") && sets(u, "IN_PROGRESS") {
						item["state"] = object{"S": "COMPLETED"}
					}
				}
			}
		}),
	},
	{
		name: "a duplicate of a key in progress is acked (FM16)", wants: "lost",
		config: func(c *semel.Config) { c.Store = &ackBusy{c.Store.(*watched)} },
	},
	{
		name: "the message is deleted when it is received (FM21)", wants: "lost",
		wire: onWire(nil, func(x *exchange, status int, out object) {
			messages, _ := out["Messages"].([]any)
			for _, m := range messages {
				_, _, _ = x.send("DeleteMessage", object{"QueueUrl": x.in["QueueUrl"], "ReceiptHandle": m.(object)["ReceiptHandle"]})
			}
		}),
	},
	{
		name: "the completing transaction has no condition (FM1)", wants: "took effect",
		tune: lateWrites(collected, "TransactWriteItems"),
		wire: onWire(func(x *exchange) object {
			for _, u := range x.updates() {
				if sets(u, "COMPLETED") {
					unguard(u)
				}
			}
			return nil
		}, nil),
	},
	{
		name: "the completing write has no condition (FM1)", wants: "(I9)", wire: lateCompletions,
		tune: func(p *plan) {
			p.effects, p.longest, p.until, p.rates = keyed, 5*time.Second, 6*time.Minute, awstest.Rates{}
		},
	},
	{
		name: "the claim has no condition", wants: "took effect", tune: only(collected),
		wire: onWire(func(x *exchange) object {
			for _, u := range x.updates() {
				if sets(u, "IN_PROGRESS") {
					unguard(u)
				}
			}
			return nil
		}, nil),
	},
	{
		name: "a commit without a response is taken for applied (FM33)", wants: "lost",
		tune: func(p *plan) {
			p.effects, p.operations = collected, map[string]awstest.Rates{"TransactWriteItems": {Before: .95}}
		},
		config: func(c *semel.Config) { c.Store = &sure{c.Store.(*watched)} },
	},
	{
		name: "effects are written beside the transaction (FM3)", wants: "took effect", tune: only(collected),
		wire: onWire(beside, nil),
	},
	{
		name: "dead letters are not sent (FM61)", wants: "lost", tune: func(p *plan) { p.failing = .5 },
		wire: onWire(func(x *exchange) object {
			url, _ := x.in["QueueUrl"].(string)
			if !strings.Contains(url, "-dead") || x.op != "SendMessageBatch" {
				return nil
			}
			var all []any
			for _, e := range x.in["Entries"].([]any) {
				body, _ := e.(object)["MessageBody"].(string)
				all = append(all, object{
					"Id": e.(object)["Id"], "MessageId": "none", "MD5OfMessageBody": fmt.Sprintf("%x", md5.Sum([]byte(body))),
				})
			}
			return object{"Successful": all, "Failed": []any{}}
		}, nil),
	},
	{
		name: "a takeover forgets the doubt", wants: "took effect", tune: func(p *plan) { p.effects, p.failing = plain, 0 },
		wire: onWire(func(x *exchange) object {
			for _, u := range x.updates() {
				forgetDoubt(u)
			}
			return nil
		}, nil),
	},
	{
		name: "clocks are further apart than MaxClockSkew (FM42)", wants: "(I5)",
		tune: func(p *plan) { p.apart, p.longest = 2*time.Minute, 80*time.Second },
	},
	{
		name: "records are purged before the last duplicate (FM41)", wants: "took effect", tune: only(collected),
		stir: func(w *world) {
			client := awsdynamodb.NewFromConfig(awstest.Config(w.dynamo))
			for _, it := range w.dynamo.Items(records) {
				if text(it, "state") != "COMPLETED" {
					continue
				}
				_, _ = client.DeleteItem(context.Background(), &awsdynamodb.DeleteItemInput{
					TableName: aws.String(records), Key: map[string]types.AttributeValue{
						"pk": &types.AttributeValueMemberS{Value: text(it, "pk")}, "sk": &types.AttributeValueMemberS{Value: text(it, "sk")},
					},
				})
			}
		},
	},
}

// forgetDoubt removes the U-event of a takeover.
func forgetDoubt(u object) {
	names, _ := u["ExpressionAttributeNames"].(object)
	for placeholder, name := range names {
		if name != "uncertainty" {
			continue
		}
		update, _ := u["UpdateExpression"].(string)
		_, rest, ok := strings.Cut(update, placeholder+" = ")
		if !ok {
			continue
		}
		value := rest[:len(rest)-len(strings.TrimLeft(rest, ":v0123456789"))]
		u["ExpressionAttributeValues"].(object)[value] = object{"N": "0"}
	}
}

// beside carries out the effects of a transaction one by one, and then the rest.
func beside(x *exchange) object {
	items, _ := x.in["TransactItems"].([]any)
	var rest []any
	for _, it := range items {
		for action, op := range map[string]string{"Update": "UpdateItem", "Put": "PutItem"} {
			w, ok := at(it.(object), action).(object)
			if ok && w["TableName"] == ledger {
				_, _, _ = x.send(op, w)
			} else if ok {
				rest = append(rest, it)
			}
		}
	}
	if len(items) > 0 {
		x.in["TransactItems"] = rest
		delete(x.in, "ClientRequestToken")
	}
	return nil
}

// ackBusy returns Replay for keys in progress.
type ackBusy struct{ *watched }

func (s *ackBusy) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	gs, err := s.watched.Claim(ctx, c...)
	for i := range gs {
		if gs[i].Verdict == driver.Busy {
			gs[i].Verdict = driver.Replay
		}
	}
	return gs, err
}

// sure takes errors of a commit for successes.
type sure struct{ *watched }

func (s *sure) Commit(ctx context.Context, works ...driver.Work) ([]driver.Outcome, error) {
	out, err := s.watched.Commit(ctx, works...)
	if err != nil {
		out = make([]driver.Outcome, len(works))
	}
	for i := range out {
		if out[i] == driver.Unknown {
			out[i] = driver.Applied
		}
	}
	return out, nil
}

// TestPlantedBugs: every planted mistake is found within a bounded number of seeds.
func TestPlantedBugs(t *testing.T) {
	const most = 400
	for i := range bugs {
		b := &bugs[i]
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			for seed := uint64(1); seed <= most; seed++ {
				v := simulate(t, planOf(seed), b)
				for _, wrong := range v.wrong {
					if strings.Contains(wrong, b.wants) {
						t.Logf("found with seed %d in %v: %s", seed, time.Since(began).Round(time.Millisecond), wrong)
						return
					}
				}
				if len(v.wrong) > 0 && testing.Verbose() {
					fmt.Println(b.name, seed, v.wrong[0])
				}
			}
			t.Errorf("not found within %d seeds", most)
		})
	}
}

// TestFM39_StaleReadsDecideNothing: stale reads do no harm, even where the store asks for consistent ones: the condition of
// a write is checked against the current item.
func TestFM39_StaleReadsDecideNothing(t *testing.T) {
	seeds := uint64(10)
	if semeltest.Nightly() {
		seeds = 60
	}
	var dropped atomic.Int64
	b := &bug{
		tune: func(p *plan) { p.rates.Stale = .8 },
		wire: onWire(func(x *exchange) object {
			if x.in["ConsistentRead"] == true {
				delete(x.in, "ConsistentRead")
				dropped.Add(1)
			}
			return nil
		}, nil),
	}
	stale := 0
	for seed := uint64(1); seed <= seeds; seed++ {
		v := simulate(t, planOf(seed), b)
		if stale += v.counts[string(awstest.Stale)]; len(v.wrong) > 0 {
			t.Error(v.String())
		}
	}
	t.Logf("%d reads were made inconsistent, %d were stale", dropped.Load(), stale)
	if stale == 0 {
		t.Error("no read was stale")
	}
}
