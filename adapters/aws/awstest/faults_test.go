package awstest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	dt "github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"

	"github.com/semel-dev/semel/adapters/aws/awstest/internal/awsjson"
)

// wire is a service that returns what a test sets, and records its requests.
type wire struct {
	mu     sync.Mutex
	bodies []string
	at     []time.Time
	reply  func(op, body string) string // nil = {}
	status int                          // 0 = 200
	sealed bool                         // with a checksum
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	w.bodies, w.at = append(w.bodies, string(b)), append(w.at, time.Now())
	w.mu.Unlock()
	out := "{}"
	if w.reply != nil {
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		out = w.reply(op, string(b))
	}
	rw.Header().Set("Content-Type", "application/x-amz-json-1.0")
	if w.sealed {
		rw.Header().Set("X-Amz-Crc32", awsjson.Checksum([]byte(out)))
	}
	if w.status != 0 {
		rw.WriteHeader(w.status)
	}
	_, _ = io.WriteString(rw, out)
}

func (w *wire) carriedOut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.bodies)
}

// once turns the SDK's retries off.
func once(c aws.Config) aws.Config {
	c.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return c
}

func dynamoOn(w *wire, p Plan) (*dynamodb.Client, *Faults) {
	f := NewFaults(p)
	return dynamodb.NewFromConfig(once(Config(w, f.Wrap))), f
}

func sqsOn(w *wire, p Plan) (*sqs.Client, *Faults) {
	f := NewFaults(p)
	return sqs.NewFromConfig(once(Config(w, f.Wrap))), f
}

// at plans one fault of the first request of an operation.
func at(op string, k Kind, more ...Fault) Plan {
	return Plan{Schedule: append([]Fault{{Operation: op, Call: 1, Kind: k}}, more...)}
}

func put(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String("t"), Item: key("1")})
	return err
}

func key(id string) map[string]dt.AttributeValue {
	return map[string]dt.AttributeValue{"pk": &dt.AttributeValueMemberS{Value: id}}
}

func counted(t *testing.T, f *Faults, k Kind, n int) {
	t.Helper()
	if got := f.Counts()[string(k)]; got != n {
		t.Errorf("counted %d of %q, wanted %d: %v", got, k, n, f.Counts())
	}
}

func TestNoFaults(t *testing.T) {
	w := &wire{}
	c, f := dynamoOn(w, Plan{})
	if err := put(t.Context(), c); err != nil || w.carriedOut() != 1 || len(f.Counts()) != 0 {
		t.Fatalf("got %v, carried out %d times, counted %v", err, w.carriedOut(), f.Counts())
	}
}

// TestBrokenConnections checks the error of the sender, and how often the request was carried out, at once and in the end.
func TestBrokenConnections(t *testing.T) {
	for _, c := range []struct {
		fault       Fault
		now, in1min int
	}{
		{Fault{Kind: Before}, 0, 0},
		{Fault{Kind: After}, 1, 1},
		{Fault{Kind: Late, By: 30 * time.Second}, 0, 1},
	} {
		t.Run(string(c.fault.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wire{}
				c.fault.Operation, c.fault.Call = "PutItem", 1
				client, f := dynamoOn(w, Plan{Schedule: []Fault{c.fault}})
				err := put(t.Context(), client)
				if !errors.Is(err, ErrFault) || w.carriedOut() != c.now {
					t.Errorf("got %v, carried out %d times, wanted %d", err, w.carriedOut(), c.now)
				}
				sent := time.Now()
				f.Wait()
				if w.carriedOut() != c.in1min {
					t.Errorf("in the end it was carried out %d times, wanted %d", w.carriedOut(), c.in1min)
				}
				if c.fault.By > 0 && w.at[0].Sub(sent) != c.fault.By {
					t.Errorf("it was carried out %v later, wanted %v", w.at[0].Sub(sent), c.fault.By)
				}
				if err := put(t.Context(), client); err != nil {
					t.Errorf("the second request: %v", err)
				}
				counted(t, f, c.fault.Kind, 1)
			})
		})
	}
}

// TestFM31_SDKRepeats: the SDK repeats a request whose response was lost, so the service carries it out twice, and the
// caller gets the second response. The pause between the two is in virtual time.
func TestFM31_SDKRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := &wire{}, NewFaults(at("PutItem", After))
		c := dynamodb.NewFromConfig(Config(w, f.Wrap))
		if err := put(t.Context(), c); err != nil || w.carriedOut() != 2 || f.Calls("PutItem") != 2 {
			t.Errorf("got %v, carried out %d times of %d requests, wanted nil and 2 of 2", err, w.carriedOut(), f.Calls("PutItem"))
		}
	})
}

// TestLateReceive: a late receive is carried out at once. Its lost messages are hidden from all receivers, and nothing is
// received later.
func TestLateReceive(t *testing.T) {
	w := &wire{}
	c, f := sqsOn(w, at("ReceiveMessage", Late))
	_, err := c.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: aws.String("q")})
	if !errors.Is(err, ErrFault) || w.carriedOut() != 1 {
		t.Errorf("got %v, carried out %d times, wanted at once", err, w.carriedOut())
	}
	counted(t, f, Late, 1)
}

// TestDelay: a request waits before it is carried out, or its response waits afterwards. The end of its context ends the
// wait.
func TestDelay(t *testing.T) {
	for _, behind := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := &wire{}
			c, f := dynamoOn(w, Plan{DelayBy: time.Minute, Schedule: []Fault{
				{Operation: "PutItem", Call: 1, Kind: Delay, Done: behind}, {Operation: "PutItem", Call: 2, Kind: Delay, Done: behind},
			}})
			began := time.Now()
			if err := put(t.Context(), c); err != nil || time.Since(began) != time.Minute {
				t.Errorf("got %v after %v, wanted a minute", err, time.Since(began))
			}
			want, wantN := time.Minute, 1
			if behind {
				want, wantN = 0, 2
			}
			if got := w.at[0].Sub(began); got != want {
				t.Errorf("it was carried out after %v, wanted %v", got, want)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began = time.Now()
			err := put(ctx, c)
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second || w.carriedOut() != wantN {
				t.Errorf("got %v after %v, carried out %d times", err, time.Since(began), w.carriedOut())
			}
			counted(t, f, Delay, 2)
		})
	}
}

func TestHang(t *testing.T) {
	for _, done := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w, n := &wire{}, 0
			if done {
				n = 1
			}
			c, f := dynamoOn(w, Plan{Schedule: []Fault{{Operation: "PutItem", Call: 1, Kind: Hang, Done: done}}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			began := time.Now()
			if err := put(ctx, c); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Hour || w.carriedOut() != n {
				t.Errorf("got %v after %v, carried out %d times", err, time.Since(began), w.carriedOut())
			}
			counted(t, f, Hang, 1)
		})
	}
}

// TestErrorsAreClassified: to the SDK the injected errors are those of the services.
func TestErrorsAreClassified(t *testing.T) {
	calls := map[string]func(ctx context.Context, w *wire, p Plan) error{
		"PutItem": func(ctx context.Context, w *wire, p Plan) error {
			c, _ := dynamoOn(w, p)
			return put(ctx, c)
		},
		"SendMessage": func(ctx context.Context, w *wire, p Plan) error {
			c, _ := sqsOn(w, p)
			_, err := c.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: aws.String("q"), MessageBody: aws.String("m")})
			return err
		},
	}
	retryable, throttle := retry.IsErrorRetryables(retry.DefaultRetryables), retry.IsErrorThrottles(retry.DefaultThrottles)
	for op, do := range calls {
		for _, c := range []struct {
			kind                Kind
			done                bool
			throttled, repeated aws.Ternary
			codes               string
		}{
			{Throttled, false, aws.TrueTernary, aws.TrueTernary, "ThrottlingException ProvisionedThroughputExceededException RequestThrottled"},
			{Internal, false, aws.UnknownTernary, aws.TrueTernary, "InternalServerError InternalFailure"},
			{Internal, true, aws.UnknownTernary, aws.TrueTernary, "InternalServerError InternalFailure"},
			{Unavailable, false, aws.UnknownTernary, aws.TrueTernary, "ServiceUnavailableException ServiceUnavailable"},
			{Before, false, aws.UnknownTernary, aws.TrueTernary, ""},
			{Late, false, aws.UnknownTernary, aws.TrueTernary, ""},
		} {
			t.Run(op+" "+string(c.kind), func(t *testing.T) {
				for seed := range uint64(6) {
					w, want := &wire{}, 0
					if c.done {
						want = 1
					}
					p := Plan{Seed: seed, Schedule: []Fault{{Operation: op, Call: 1, Kind: c.kind, Done: c.done, By: time.Hour}}}
					err := do(t.Context(), w, p)
					if err == nil || w.carriedOut() != want {
						t.Fatalf("got %v, carried out %d times, wanted %d", err, w.carriedOut(), want)
					}
					if got := throttle.IsErrorThrottle(err); got != c.throttled {
						t.Errorf("the SDK takes %v for throttling: %v, wanted %v", err, got, c.throttled)
					}
					if got := retryable.IsErrorRetryable(err); got != c.repeated {
						t.Errorf("the SDK would repeat %v: %v, wanted %v", err, got, c.repeated)
					}
					var api smithy.APIError
					if errors.As(err, &api) != (c.codes != "") || (api != nil && !strings.Contains(c.codes, api.ErrorCode())) {
						t.Errorf("the error is %v, wanted one of %q", err, c.codes)
					}
				}
			})
		}
	}
}

func TestConflicts(t *testing.T) {
	c, f := dynamoOn(&wire{}, at("UpdateItem", Conflict, Fault{Operation: "TransactWriteItems", Call: 1, Kind: Conflict},
		Fault{Operation: "GetItem", Call: 1, Kind: Conflict}))
	_, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: aws.String("t"), Key: key("1")})
	if conflict := (*dt.TransactionConflictException)(nil); !errors.As(err, &conflict) {
		t.Errorf("UpdateItem returned %v", err)
	}
	item := dt.TransactWriteItem{Delete: &dt.Delete{TableName: aws.String("t"), Key: key("1")}}
	_, err = c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []dt.TransactWriteItem{item, item, item}})
	cancelled := (*dt.TransactionCanceledException)(nil)
	if !errors.As(err, &cancelled) || len(cancelled.CancellationReasons) != 3 {
		t.Fatalf("TransactWriteItems returned %v", err)
	}
	codes := map[string]int{}
	for _, r := range cancelled.CancellationReasons {
		codes[aws.ToString(r.Code)]++
	}
	if codes["TransactionConflict"] != 1 || codes["None"] != 2 {
		t.Errorf("the reasons are %v", codes)
	}
	if _, err := c.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("t"), Key: key("1")}); err != nil {
		t.Errorf("GetItem returned %v: it conflicts with nothing", err)
	}
	counted(t, f, Conflict, 2)
}

func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &wire{}
		c, f := dynamoOn(w, Plan{Schedule: []Fault{{Operation: "PutItem", Call: 2, Kind: Late, By: time.Hour}}})
		w.reply = func(string, string) string {
			if w.carriedOut() == 1 {
				f.Outage(true) // while the first is under way
			}
			return "{}"
		}
		for n, carriedOut := range []int{1, 1} {
			if err := put(t.Context(), c); !errors.Is(err, ErrFault) || w.carriedOut() != carriedOut {
				t.Errorf("request %d in the outage returned %v, carried out %d", n, err, w.carriedOut())
			}
		}
		f.Outage(false)
		_ = put(t.Context(), c) // late
		f.Outage(true)
		if f.Wait(); w.carriedOut() != 2 {
			t.Errorf("what was sent before an outage arrives during it; carried out %d", w.carriedOut())
		}
		f.Outage(false)
		if err := put(t.Context(), c); err != nil {
			t.Errorf("after the outage: %v", err)
		}
		counted(t, f, "outage", 2)
	})
}

// TestRatesRepeatThemselves: the same seed gives the same faults, independent of other operations.
func TestRatesRepeatThemselves(t *testing.T) {
	fates := func(seed uint64, others int) string {
		f := NewFaults(Plan{Seed: seed, LateBy: time.Minute, Only: []string{"PutItem", "GetItem"}, Rates: Rates{
			Before: .1, After: .1, Late: .1, Delay: .1, Hang: .1, Internal: .1, Unavailable: .1, Throttled: .1, Conflict: .1, Partial: .1, Torn: .05,
		}, Operations: map[string]Rates{"GetItem": {}}})
		var all []any
		for range 200 {
			for range others {
				if x := f.draw("GetItem"); x.kind != "" {
					t.Errorf("GetItem, whose rates are zero, got %q", x.kind)
				}
			}
			if x := f.draw("UpdateItem"); x.kind != "" {
				t.Errorf("UpdateItem, which Only leaves out, got %q", x.kind)
			}
			x := f.draw("PutItem")
			all = append(all, x.kind, x.done, x.late)
		}
		b, _ := json.Marshal(all)
		return string(b)
	}
	one := fates(1, 0)
	if fates(1, 2) != one || fates(2, 0) == one {
		t.Error("fates depend on other operations, or not on the seed")
	}
	for _, k := range []Kind{Before, After, Late, Hang, Internal, Unavailable, Throttled, Conflict, Partial, Torn} {
		if !strings.Contains(one, `"`+string(k)+`"`) {
			t.Errorf("no %q among 200 requests", k)
		}
	}
}
