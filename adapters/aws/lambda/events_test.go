package semellambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/semel-dev/semel"
	semellambda "github.com/semel-dev/semel/adapters/aws/lambda"
	edgehttp "github.com/semel-dev/semel/edge/http"
	"github.com/semel-dev/semel/memory"
)

// sample is a sample event of the aws-lambda-go project.
func sample(t *testing.T, name string) json.RawMessage {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/aws-lambda-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "events", "testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// keys collects the keys of runs.
type keys []string

func (k *keys) note(a *semel.Attempt) error {
	*k = append(*k, a.Key.Raw)
	return nil
}

// TestDirectEvents: samples of real events run once, with the key that they would have in a queue.
func TestDirectEvents(t *testing.T) {
	var ran keys
	d := semellambda.Direct{Store: memory.NewStore(), Consumer: "f"}
	s3 := d.S3(func(_ context.Context, r events.S3EventRecord, a *semel.Attempt) error {
		if r.S3.Object.URLDecodedKey == "" {
			t.Errorf("record %+v", r)
		}
		return ran.note(a)
	})
	sns := d.SNS(func(_ context.Context, r events.SNSEventRecord, a *semel.Attempt) error {
		if r.SNS.Message == "" {
			t.Errorf("record %+v", r)
		}
		return ran.note(a)
	})
	bridge := d.EventBridge(func(_ context.Context, e events.EventBridgeEvent, a *semel.Attempt) error {
		if e.DetailType == "" {
			t.Errorf("event %+v", e)
		}
		return ran.note(a)
	})
	for file, c := range map[string]struct {
		handle func(context.Context, json.RawMessage) error
		want   string
	}{
		"s3-event.json":             {s3, "s3|sourcebucket|Happy Face.jpg|version"},
		"s3-restore-event.json":     {s3, "s3|example-bucket|glacier-test.txt|abcdeH0Xp66ep__QDjR76LK7Gc9X4wKO|0A1B2C3D4E5F678901|restore-completed"},
		"s3-lifecycle-event.json":   {s3, "s3|example-bucket|lifecycle-test.dat|lifecycleVersion123|0066LIFECYCLE890|storage-class-changed"},
		"s3-replication-event.json": {s3, "s3|amzn-s3-demo-bucket1|replication-test.png|abcdeH0Xp66ep__QDjR76LK7Gc9X4wKO|0066DA1CBF104C0D51|Replication:OperationFailedReplication"},
		"sns-event.json":            {sns, "sns|arn:aws:sns:EXAMPLE|95df01b4-ee98-5cb9-9903-4c221d41eb5e"},
		"autoscaling-event-launch-successful.json": {
			bridge, "eb|123456789012|us-west-2|aws.autoscaling|12345678-1234-1234-1234-123456789012",
		},
	} {
		ran = nil
		raw := sample(t, file)
		for range 3 {
			if err := c.handle(t.Context(), raw); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
		if len(ran) != 1 || ran[0] != c.want {
			t.Errorf("%s ran as %q, want %q", file, ran, c.want)
		}
	}
}

// TestDirectEventsThatFail: the whole event is repeated. Finished records are not run again, and records without a key never
// run.
func TestDirectEventsThatFail(t *testing.T) {
	var ran keys
	fail := "b"
	d := semellambda.Direct{Store: memory.NewStore(), Consumer: "f"}
	handle := d.S3(func(_ context.Context, r events.S3EventRecord, a *semel.Attempt) error {
		if r.S3.Object.Key == fail {
			return semel.NotApplied(errBoom)
		}
		return ran.note(a)
	})
	object := func(name string) string {
		return fmt.Sprintf(`{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"x"},"object":{"key":%q,"versionId":"1"}}}`, name)
	}
	ev := json.RawMessage(`{"Records":[` + object("a") + `,` + object("b") + `,` + object("c") + `]}`)
	if err := handle(t.Context(), ev); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "record 1") {
		t.Fatal(err)
	}
	fail = ""
	if err := handle(t.Context(), ev); err != nil || fmt.Sprint(ran) != "[s3|x|a|1 s3|x|c|1 s3|x|b|1]" {
		t.Fatalf("%v, ran %q", err, ran)
	}
	for _, bad := range []string{`{}`, `[]`, `{"Records":[]}`, `{"Records":[{"eventSource":"aws:s3"}]}`, `{"Records":[7]}`} {
		if err := handle(t.Context(), json.RawMessage(bad)); err == nil || len(ran) != 3 {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if err := (semellambda.Direct{}).S3(nil)(t.Context(), ev); !errors.As(err, new(*semel.ConfigError)) {
		t.Error(err)
	}
}

// TestDirectEndsWithTheInvocation: the run is cancelled before the deadline, and its lease ends shortly after it.
func TestDirectEndsWithTheInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewStore()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		end, _ := ctx.Deadline()
		err := semellambda.Direct{Store: store, Consumer: "f"}.EventBridge(func(ctx context.Context, _ events.EventBridgeEvent, a *semel.Attempt) error {
			<-ctx.Done()
			if r, _, err := store.Record(t.Context(), a.Key); err != nil || r.LeaseUntil.After(end.Add(time.Second)) {
				t.Errorf("the lease ends %v behind the deadline, %v", r.LeaseUntil.Sub(end), err)
			}
			return ctx.Err()
		})(ctx, json.RawMessage(`{"detail-type":"x","source":"s","account":"1","region":"r","id":"i","detail":{}}`))
		if err == nil || time.Until(end) < 900*time.Millisecond {
			t.Errorf("%v, %v before the deadline", err, time.Until(end))
		}
	})
}

// shop is a handler behind a gateway.
func shop(t *testing.T, runs *int) *semellambda.HTTP {
	t.Helper()
	h, err := semellambda.NewHTTP(edgehttp.Options{
		Store: memory.NewStore(), Tenant: func(r *http.Request) (string, error) {
			if semellambda.EventFrom(r.Context()) == nil {
				return "", errBoom
			}
			return "t", nil
		},
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*runs++
		if r.URL.Query().Get("wait") != "" {
			time.Sleep(10 * time.Second)
		}
		w.Header().Add("X-Order", "7")
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, r.URL.RequestURI())
		if r.URL.Query().Get("bytes") != "" {
			_, _ = w.Write([]byte{0xff})
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestGateways: the three formats of requests, with the same rules: replay, another payload, no key.
func TestGateways(t *testing.T) {
	type reply struct {
		status        int
		order, replay string
		cookies       []string
		body          string
		base64        bool
	}
	for name, call := range map[string]func(h *semellambda.HTTP, key, body, query string) (reply, error){
		"v1": func(h *semellambda.HTTP, key, body, query string) (reply, error) {
			var ev events.APIGatewayProxyRequest
			if err := json.Unmarshal(sample(t, "apigw-request.json"), &ev); err != nil {
				return reply{}, err
			}
			ev.HTTPMethod, ev.Path, ev.Body = "POST", "/orders", body
			ev.MultiValueHeaders, ev.QueryStringParameters, ev.MultiValueQueryStringParameters = nil, nil, nil
			if ev.Headers = map[string]string{"content-type": "application/json"}; key != "" {
				ev.Headers["idempotency-key"] = key
			}
			if query != "" {
				ev.MultiValueQueryStringParameters = map[string][]string{query: {"1"}}
			}
			a, err := h.V1(t.Context(), ev)
			first := func(n string) string { return strings.Join(a.MultiValueHeaders[n], ",") }
			return reply{a.StatusCode, first("X-Order"), first("Idempotent-Replayed"), a.MultiValueHeaders["Set-Cookie"], a.Body, a.IsBase64Encoded}, err
		},
		"v2": func(h *semellambda.HTTP, key, body, query string) (reply, error) {
			var ev events.APIGatewayV2HTTPRequest
			if err := json.Unmarshal(sample(t, "apigw-v2-request-no-authorizer.json"), &ev); err != nil {
				return reply{}, err
			}
			ev.RequestContext.HTTP.Method, ev.RawPath, ev.Body = "POST", "/orders", body
			if key != "" {
				ev.Headers["idempotency-key"] = key
			}
			if query != "" {
				ev.RawQueryString = query + "=1"
			}
			a, err := h.V2(t.Context(), ev)
			return reply{a.StatusCode, a.Headers["X-Order"], a.Headers["Idempotent-Replayed"], a.Cookies, a.Body, a.IsBase64Encoded}, err
		},
		"url": func(h *semellambda.HTTP, key, body, query string) (reply, error) {
			var ev events.LambdaFunctionURLRequest
			if err := json.Unmarshal(sample(t, "lambda-urls-request.json"), &ev); err != nil {
				return reply{}, err
			}
			ev.RequestContext.HTTP.Method, ev.RawPath, ev.RawQueryString, ev.Body, ev.IsBase64Encoded = "POST", "/orders", "", body, false
			if key != "" {
				ev.Headers["Idempotency-Key"] = key
			}
			if query != "" {
				ev.RawQueryString = query + "=1"
			}
			a, err := h.URL(t.Context(), ev)
			return reply{a.StatusCode, a.Headers["X-Order"], a.Headers["Idempotent-Replayed"], a.Cookies, a.Body, a.IsBase64Encoded}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			h := shop(t, &runs)
			want := reply{201, "7", "", []string{"a=1", "b=2"}, "POST /orders", false}
			first, err := call(h, "k1", `{"n":1}`, "")
			if err != nil || fmt.Sprint(first) != fmt.Sprint(want) {
				t.Fatalf("%+v, %v", first, err)
			}
			want.replay = "true"
			if again, err := call(h, "k1", `{"n":1}`, ""); err != nil || fmt.Sprint(again) != fmt.Sprint(want) || runs != 1 {
				t.Errorf("%+v, %v after %d runs", again, err, runs)
			}
			if other, err := call(h, "k1", `{"n":2}`, ""); err != nil || other.status != 422 || runs != 1 {
				t.Errorf("%+v, %v after %d runs", other, err, runs)
			}
			if none, err := call(h, "", `{"n":1}`, ""); err != nil || none.status != 400 || runs != 1 {
				t.Errorf("%+v, %v after %d runs", none, err, runs)
			}
			if raw, err := call(h, "k2", "x", "bytes"); err != nil || !raw.base64 || raw.body != "UE9TVCAvb3JkZXJzP2J5dGVzPTH/" {
				t.Errorf("%+v, %v", raw, err)
			}
		})
	}
}

// TestPathsOfGateways: REST APIs and function URLs pass paths on unchanged, HTTP APIs decode them first. The handler gets
// the same path, and no path is taken for a host, a query or a fragment.
func TestPathsOfGateways(t *testing.T) {
	var got string
	h, err := semellambda.NewHTTP(edgehttp.Options{Store: memory.NewStore(), Tenant: edgehttp.SingleTenant},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			got = r.URL.Path + " of " + r.URL.Host + " as " + r.RequestURI
		}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"":                 "/ of  as /?q=1",
		"/":                "/ of  as /?q=1",
		"/a%20b":           "/a b of  as /a%20b?q=1",
		"/a b":             "/a b of  as /a%20b?q=1",
		"/a%2Fb":           "/a/b of  as /a%2Fb?q=1",
		"/100%":            "/100% of  as /100%25?q=1",
		"/50%zz":           "/50%zz of  as /50%25zz?q=1",
		"/a?admin=1":       "/a?admin=1 of  as /a%3Fadmin=1?q=1",
		"/a#b":             "/a#b of  as /a%23b?q=1",
		"/\u00e9":          "/\u00e9 of  as /%C3%A9?q=1",
		"//evil.test/a":    "//evil.test/a of  as //evil.test/a?q=1",
		"//evil:x/a":       "//evil:x/a of  as //evil:x/a?q=1",
		"http://evil/a":    "/http://evil/a of  as /http://evil/a?q=1",
		"/a\n\"<b>\\^`{|}": "/a\n\"<b>\\^`{|} of  as /a%0A%22%3Cb%3E%5C%5E%60%7B%7C%7D?q=1",
	} {
		v1 := events.APIGatewayProxyRequest{HTTPMethod: "GET", Path: path, QueryStringParameters: map[string]string{"q": "1"}}
		if _, err := h.V1(t.Context(), v1); err != nil || got != want {
			t.Errorf("V1 %q: %q, %v, want %q", path, got, err, want)
		}
		v2 := events.APIGatewayV2HTTPRequest{RawPath: path, RawQueryString: "q=1"}
		if _, err := h.V2(t.Context(), v2); err != nil || got != want {
			t.Errorf("V2 %q: %q, %v, want %q", path, got, err, want)
		}
		u := events.LambdaFunctionURLRequest{RawPath: path, RawQueryString: "q=1"}
		if _, err := h.URL(t.Context(), u); err != nil || got != want {
			t.Errorf("URL %q: %q, %v, want %q", path, got, err, want)
		}
	}
}

// TestGatewayInProgress: a repetition gets 409 while the first request runs, and its response afterwards.
func TestGatewayInProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		h := shop(t, &runs)
		ev := events.APIGatewayV2HTTPRequest{RawPath: "/orders", RawQueryString: "wait=1", Headers: map[string]string{"idempotency-key": "k"}}
		ev.RequestContext.HTTP.Method = "POST"
		status := func() int {
			a, err := h.V2(t.Context(), ev)
			if err != nil {
				t.Error(err)
			}
			return a.StatusCode
		}
		done := make(chan int)
		go func() { done <- status() }()
		synctest.Wait()
		if got := status(); got != 409 {
			t.Errorf("%d while it is in progress", got)
		}
		if first, again := <-done, status(); first != 201 || again != 201 || runs != 1 {
			t.Errorf("%d and %d after %d runs", first, again, runs)
		}
	})
}

// TestGatewaysThatMakeNoRequest: invalid events are errors, not panics.
func TestGatewaysThatMakeNoRequest(t *testing.T) {
	runs := 0
	h := shop(t, &runs)
	for _, ev := range []events.APIGatewayProxyRequest{
		{HTTPMethod: "POST", Path: "/", Body: "%", IsBase64Encoded: true}, {HTTPMethod: "PO ST", Path: "/"},
	} {
		if _, err := h.V1(t.Context(), ev); err == nil {
			t.Errorf("%+v is a request", ev)
		}
	}
	twice := events.APIGatewayProxyRequest{
		HTTPMethod: "POST", Path: "/", Headers: map[string]string{"idempotency-key": "b"},
		MultiValueHeaders: map[string][]string{"idempotency-key": {"a", "b"}},
	}
	if a, err := h.V1(t.Context(), twice); err != nil || a.StatusCode != http.StatusBadRequest || runs != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestSQSSample: the sample of an SQS event runs, with its attributes as headers.
func TestSQSSample(t *testing.T) {
	var ev events.SQSEvent
	if err := json.Unmarshal(sample(t, "sqs-event.json"), &ev); err != nil {
		t.Fatal(err)
	}
	var got []string
	w := newFixture(t, func(cfg *semel.Config, _ *semellambda.Options) {
		cfg.Handler = semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			got = []string{a.ID, a.Queue, string(a.Body), a.Header("attribute1"), a.Header("attribute3"), a.SentAt.UTC().Format(time.RFC3339), fmt.Sprint(a.Redelivered)}
			return nil
		})
	})
	if response, alive := w.respond(ev); !alive || string(response) != `{"batchItemFailures":[]}` {
		t.Errorf("got %s", response)
	}
	if want := []string{"MessageID_1", "SQSQueue", "Message Body", "AttributeValue1", "MTEwMA==", "2018-03-09T18:53:45Z", "true"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
