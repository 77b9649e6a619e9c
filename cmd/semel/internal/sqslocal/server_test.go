package sqslocal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/sqslocal"
)

// local is a server behind a socket, with one queue.
type local struct {
	*testing.T
	url    string
	faults *sqslocal.Faults
	clock  *awstest.Clock
}

func newLocal(t *testing.T, queue string, faults ...string) *local {
	t.Helper()
	l := &local{T: t, faults: sqslocal.NewFaults(1), clock: awstest.Frozen(time.Unix(1_700_000_000, 0))}
	s, err := sqslocal.New(sqslocal.Options{Faults: l.faults, Clock: l.clock})
	if err != nil {
		t.Fatal(err)
	}
	q, err := sqslocal.ParseQueue(queue)
	if err = errors.Join(err, s.Create(q)); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	l.url = srv.URL
	l.fault(faults...)
	return l
}

func (l *local) fault(texts ...string) {
	l.Helper()
	set, err := sqslocal.ParseFaults(texts)
	if err = errors.Join(err, l.faults.Apply(sqslocal.Change{Faults: set})); err != nil {
		l.Fatal(err)
	}
}

// do sends a request of its own, without repeating it.
func (l *local) do(method, path, body string, head ...string) (int, string, error) {
	l.Helper()
	r, err := http.NewRequestWithContext(l.Context(), method, l.url+path, strings.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	for i := 0; i < len(head); i += 2 {
		r.Header.Set(head[i], head[i+1])
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = got.Body.Close() }()
	b, err := io.ReadAll(got.Body)
	return got.StatusCode, string(b), err
}

func (l *local) try(op string, more map[string]any) (int, string, error) {
	l.Helper()
	in := map[string]any{"QueueUrl": l.url + "/000000000000/q"}
	for k, v := range more {
		in[k] = v
	}
	b, err := json.Marshal(in)
	if err != nil {
		l.Fatal(err)
	}
	return l.do(http.MethodPost, "/", string(b), "X-Amz-Target", "AmazonSQS."+op)
}

func (l *local) ok(op string, more map[string]any) string {
	l.Helper()
	status, text, err := l.try(op, more)
	if err != nil || status != http.StatusOK {
		l.Fatalf("%s: %d %s, %v", op, status, text, err)
	}
	return text
}

func (l *local) send(bodies ...string) {
	l.Helper()
	for _, b := range bodies {
		l.ok("SendMessage", map[string]any{"MessageBody": b})
	}
}

type got struct{ Body, ReceiptHandle, MessageID string }

func (l *local) receive() []got {
	l.Helper()
	var out struct{ Messages []got }
	if err := json.Unmarshal([]byte(l.ok("ReceiveMessage", map[string]any{"MaxNumberOfMessages": 10})), &out); err != nil {
		l.Fatal(err)
	}
	return out.Messages
}

// left is how many messages there are in all.
func (l *local) left() string {
	l.Helper()
	var out struct{ Attributes map[string]string }
	if err := json.Unmarshal([]byte(l.ok("GetQueueAttributes", map[string]any{"AttributeNames": []string{"All"}})), &out); err != nil {
		l.Fatal(err)
	}
	return out.Attributes["ApproximateNumberOfMessages"] + " " + out.Attributes["ApproximateNumberOfMessagesNotVisible"]
}

func (l *local) counts(name string) sqslocal.Count { return l.faults.State().Counts[name] }

func TestDuplicate(t *testing.T) {
	l := newLocal(t, "q", "duplicate=next:1")
	l.send("a", "b")
	if first, second, third := l.receive(), l.receive(), l.receive(); len(first) != 2 || len(second) != 1 || second[0].Body != "a" || len(third) != 0 {
		t.Errorf("%v, %v, %v: want a and b, a once more, nothing", first, second, third)
	}
	if c := l.counts("duplicate"); c != (sqslocal.Count{Chances: 1, Hits: 1}) {
		t.Errorf("%+v: a fault that is used up has no more chances", c)
	}
}

func TestEarlyAndLateVisible(t *testing.T) {
	l := newLocal(t, "q,visibility=12h", "early-visible=next:1")
	l.send("a")
	if first, second, third := l.receive(), l.receive(), l.receive(); len(first)+len(second) != 2 || len(third) != 0 {
		t.Errorf("%v, %v, %v: want a, a at once, nothing", first, second, third)
	}
	l = newLocal(t, "q,visibility=0s", "late-visible=next:1,by=1h")
	l.send("a")
	if first, second := l.receive(), l.receive(); len(first) != 1 || len(second) != 1 {
		t.Errorf("%v, %v: what is visible at once has no end that could be late", first, second)
	}
	l = newLocal(t, "q,visibility=1s", "late-visible=next:1,by=1h")
	l.send("a")
	l.receive()
	l.clock.Advance(time.Hour)
	if second := l.receive(); len(second) != 0 {
		t.Errorf("%v: want nothing for an hour and a second", second)
	}
	l.clock.Advance(time.Second)
	if second := l.receive(); len(second) != 1 {
		t.Error("it is not redelivered")
	}
}

func TestDroppedDelete(t *testing.T) {
	l := newLocal(t, "q", "dropped-delete=next:2")
	l.send("a", "b", "c")
	m := l.receive()
	l.ok("DeleteMessage", map[string]any{"ReceiptHandle": m[0].ReceiptHandle})
	said := l.ok("DeleteMessageBatch", map[string]any{"Entries": []map[string]string{
		{"Id": "1", "ReceiptHandle": m[1].ReceiptHandle}, {"Id": "2", "ReceiptHandle": m[2].ReceiptHandle},
	}})
	if said != `{"Successful":[{"Id":"1"},{"Id":"2"}]}` || l.left() != "0 2" {
		t.Errorf("%s, %s left: want success, and two of three left in flight", said, l.left())
	}
	l.ok("DeleteMessage", map[string]any{"ReceiptHandle": m[0].ReceiptHandle})
	if l.left() != "0 1" {
		t.Errorf("%s left: the next deletion counts", l.left())
	}
}

func TestStaleHandle(t *testing.T) {
	l := newLocal(t, "q", "stale-handle=next:3")
	l.send("a")
	m := l.receive()
	h := map[string]any{"ReceiptHandle": m[0].ReceiptHandle, "VisibilityTimeout": 0}
	for _, op := range []string{"DeleteMessage", "ChangeMessageVisibility"} {
		if status, text, err := l.try(op, h); status != http.StatusNotFound || !strings.Contains(text, "ReceiptHandleIsInvalid") {
			t.Errorf("%s: %d %s, %v", op, status, text, err)
		}
	}
	said := l.ok("DeleteMessageBatch", map[string]any{"Entries": []map[string]string{{"Id": "1", "ReceiptHandle": m[0].ReceiptHandle}}})
	if !strings.Contains(said, `"Failed":[{"Code":"ReceiptHandleIsInvalid","Id":"1"`) || l.left() != "0 1" {
		t.Errorf("%s, %s left: nothing is done by a refused handle", said, l.left())
	}
	many := []map[string]string{}
	for i := range 11 {
		many = append(many, map[string]string{"Id": fmt.Sprint(i), "ReceiptHandle": m[0].ReceiptHandle})
	}
	l.fault("stale-handle=1")
	if status, text, _ := l.try("DeleteMessageBatch", map[string]any{"Entries": many}); status != 400 || !strings.Contains(text, "TooManyEntries") {
		t.Errorf("%d %s: a batch that is refused as a whole stays refused", status, text)
	}
}

func TestFaultsOfTheWire(t *testing.T) {
	for _, c := range []struct {
		fault, left, says string
		status            int
		cut               bool
	}{
		{fault: "cut", left: "0 0", cut: true},
		{fault: "lost-response", left: "1 0", cut: true},
		{fault: "torn", left: "1 0", status: 200, cut: true},
		{fault: "throttle", left: "0 0", status: 403, says: "RequestThrottled"},
		{fault: "unavailable", left: "0 0", status: 503, says: "ServiceUnavailable"},
		{fault: "internal", status: 500, says: "InternalFailure"},
		{fault: "delay@SendMessage", left: "1 0", status: 200, says: "MessageId"},
	} {
		l := newLocal(t, "q", c.fault+"=next:1")
		status, text, err := l.try("SendMessage", map[string]any{"MessageBody": "a"})
		if status != c.status || c.cut != (err != nil) || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %q, %v", c.fault, status, text, err)
		}
		if left := l.left(); c.left != "" && left != c.left {
			t.Errorf("%s: %s left, want %s", c.fault, left, c.left)
		}
		name, _, _ := strings.Cut(c.fault, "@")
		if n := l.counts(name); n.Hits != 1 {
			t.Errorf("%s: %+v", c.fault, n)
		}
	}
	l := newLocal(t, "q", "partial=1")
	said := l.ok("SendMessageBatch", map[string]any{"Entries": []map[string]string{{"Id": "1", "MessageBody": "a"}, {"Id": "2", "MessageBody": "b"}}})
	if !strings.Contains(said, `"Code":"InternalError"`) {
		t.Errorf("%s: no entry failed", said)
	}
}

// Which chances hit depends on the seed and the number of the chance.
func TestTheSameSeedHitsTheSameChances(t *testing.T) {
	hits := func(seed uint64) (all string) {
		l := newLocal(t, "q")
		if err := l.faults.Apply(sqslocal.Change{Seed: &seed, Faults: map[string]sqslocal.Fault{"throttle": {Rate: 0.3}}}); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			status, _, err := l.try("SendMessage", map[string]any{"MessageBody": "a"})
			if err != nil {
				t.Fatal(err)
			}
			all += fmt.Sprint(status/100 - 2)
		}
		return all
	}
	one := hits(1)
	if one != hits(1) || one == hits(2) {
		t.Error("the seed does not decide")
	}
	if n := strings.Count(one, "2"); n < 30 || n > 90 { // 60 expected, deviation 6.5
		t.Errorf("%d of 200 hit at a rate of 0.3", n)
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	l := newLocal(t, "q")
	put := func(body string) (int, string) {
		status, text, err := l.do(http.MethodPut, sqslocal.FaultsPath, body)
		if err != nil {
			t.Fatal(err)
		}
		return status, text
	}
	status, text := put(`{"seed": 9, "faults": {"duplicate": 0.5, "delay": {"next": 2, "operations": ["SendMessage"], "by": "3s"}}}`)
	if want := `"seed":9,"faults":{"delay":{"next":2,"operations":["SendMessage"],"by":"3s"},"duplicate":{"rate":0.5}}`; status != 200 || !strings.Contains(text, want) {
		t.Errorf("%d %s, want %s", status, text, want)
	}
	if _, text := put(`{"faults": {"delay": null}}`); strings.Contains(text, "delay") || !strings.Contains(text, "duplicate") {
		t.Errorf("%s: delay was taken away, duplicate not", text)
	}
	for _, bad := range []string{
		``, `[]`, `{"faults": {"duplicat": 1}}`, `{"faults": {"duplicate": 2}}`, `{"faults": {"duplicate": {"rat": 1}}}`,
		`{"faults": {"torn": {"rate": 1, "by": "1s"}}}`, `{"faults": {"duplicate": {"rate": 1, "operations": ["SendMessage"]}}}`,
		`{"faults": {"torn": {"rate": 1, "operations": ["Sing"]}}}`, `{"fault": {}}`, `{"faults": {"torn": {"next": -1}}}`, `{} {}`,
		`{"faults": {"torn": 1, "duplicate": -1}}`, `{"faults": {"x": "` + strings.Repeat("x", 1<<17) + `"}}`,
	} {
		if status, text := put(bad); status != 400 || !strings.Contains(text, `"code":"usage"`) {
			t.Errorf("%.60s: %d %s", bad, status, text)
		}
	}
	if state := l.faults.State(); len(state.Faults) != 1 {
		t.Errorf("%v: what is refused changes nothing", state.Faults)
	}
	if status, _, _ := l.do(http.MethodPost, sqslocal.FaultsPath, "{}"); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
	if status, text, _ := l.do(http.MethodDelete, sqslocal.FaultsPath, ""); status != 200 || !strings.Contains(text, `"faults":{}`) {
		t.Errorf("DELETE: %d %s", status, text)
	}
}

// What is no request of SQS is refused in the words of its protocol.
func TestHostileRequests(t *testing.T) {
	l := newLocal(t, "q")
	huge := strings.Repeat("x", 17<<20)
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for _, c := range []struct {
		name, method, path, body, says string
		status                         int
		head                           []string
	}{
		{"no JSON", "POST", "/", "{", "SerializationException", 400, []string{"X-Amz-Target", "AmazonSQS.SendMessage"}},
		{"another type", "POST", "/", `{"QueueUrl":1}`, "SerializationException", 400, []string{"X-Amz-Target", "AmazonSQS.SendMessage"}},
		{"another service", "POST", "/", "{}", "UnknownOperation", 400, []string{"X-Amz-Target", "DynamoDB_20120810.GetItem"}},
		{"no such operation", "POST", "/", "{}", "UnknownOperation", 400, []string{"X-Amz-Target", "AmazonSQS.Sing"}},
		{"no queue", "POST", "/", `{"QueueUrl":"q"}`, "InvalidAddress", 404, []string{"X-Amz-Target", "AmazonSQS.PurgeQueue"}},
		{"17 MiB", "POST", "/", huge, "too large", 413, []string{"X-Amz-Target", "AmazonSQS.SendMessage"}},
		{"17 MiB to settle", "POST", "/", huge, "too large", 413, []string{"X-Amz-Target", "AmazonSQS.DeleteMessage"}},
		{"a browser", "GET", "/", "", "semel sqs, a local Amazon SQS", 400, nil},
		{"no such action", "GET", "/?Action=Sing", "", "InvalidAction", 400, nil},
		{"a word for a number", "POST", "/000000000000/q", "Action=ReceiveMessage&MaxNumberOfMessages=x", "InvalidParameterValue", 400, form},
		{"a long name", "POST", "/000000000000/q", "Action=ReceiveMessage&" + strings.Repeat("a.", 100) + "b=1", "ReceiveMessageResult", 200, form},
		{"half a form", "POST", "/", "Action=%zz", "MalformedInput", 400, form},
	} {
		l.fault("stale-handle=1e-300") // the faults read requests too
		status, text, err := l.do(c.method, c.path, c.body, c.head...)
		if err != nil || status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s: %d %.300s, %v; want %d and %s", c.name, status, text, err, c.status, c.says)
		}
	}
}

func TestParseFault(t *testing.T) {
	for text, want := range map[string]sqslocal.Fault{
		"duplicate=0.2": {Rate: 0.2},
		"torn=next:3":   {Next: 3},
		"torn=off":      {},
		"lost-response@SendMessage+DeleteMessage=0.25": {Rate: 0.25, Operations: []string{"SendMessage", "DeleteMessage"}},
		"delay=next:2,by=1m0s":                         {Next: 2, By: config.Duration(time.Minute)},
	} {
		name, got, err := sqslocal.ParseFault(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		if again, f, err := sqslocal.ParseFault(sqslocal.Text(name, got)); err != nil || again != name || !reflect.DeepEqual(f, want) {
			t.Errorf("%s is written as %s", text, sqslocal.Text(name, got))
		}
	}
	for _, bad := range []string{
		"", "duplicate", "duplicate=", "duplicate=x", "duplicate=1.1", "duplicate=NaN", "duplicate=-0.1", "torn=next:", "torn=next:-1",
		"duplicate=1,by=1s", "delay=1,by=13h", "delay=1,at=1s", "duplicate@SendMessage=1", "torn@=1", "sing=1",
	} {
		if name, f, err := sqslocal.ParseFault(bad); err == nil {
			t.Errorf("%q is read as %s %+v", bad, name, f)
		}
	}
	if err := sqslocal.NewFaults(1).Apply(sqslocal.Change{Faults: map[string]sqslocal.Fault{"torn": {Rate: math.NaN()}}}); err == nil {
		t.Error("NaN is a chance")
	}
}

func TestParseQueue(t *testing.T) {
	q, err := sqslocal.ParseQueue("jobs,fifo,dlq=dead:5,visibility=5s,delay=0s,retention=1d,wait=20s")
	want := sqslocal.NewQueue{Name: "jobs.fifo", Dead: "dead.fifo", Receives: 5, Attributes: map[string]string{
		"VisibilityTimeout": "5", "DelaySeconds": "0", "MessageRetentionPeriod": "86400", "ReceiveMessageWaitTimeSeconds": "20",
		"ContentBasedDeduplication": "true",
	}}
	if err != nil || !reflect.DeepEqual(q, want) {
		t.Errorf("%+v, %v", q, err)
	}
	for _, bad := range []string{"q,fif", "q,dlq=", "q,dlq=d:0", "q,dlq=d:x", "q,visibility=1500ms", "q,visibility=x", "q,"} {
		if q, err := sqslocal.ParseQueue(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, q)
		}
	}
}

// A response may contain everything that a message may: clients of the query protocol read it as XML.
func TestQueryProtocolCarriesEveryText(t *testing.T) {
	l := newLocal(t, "q")
	l.send("<a>&\"'\r\n\t]]>日本😀")
	status, text, err := l.do(http.MethodPost, "/000000000000/q", "Action=ReceiveMessage&AttributeName.1=All",
		"Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if err != nil || status != 200 {
		t.Fatal(status, text, err)
	}
	if !bytes.Contains([]byte(text), []byte("<Body>&lt;a&gt;&amp;&quot;'&#xD;&#xA;&#x9;]]&gt;日本😀</Body>")) {
		t.Error(text)
	}
}

// Faults strike the query protocol as they strike JSON.
func TestFaultsOfTheQueryProtocol(t *testing.T) {
	l := newLocal(t, "q", "torn=next:1")
	send := func() (int, string, error) {
		return l.do(http.MethodPost, "/000000000000/q", "Action=SendMessage&MessageBody=a", "Content-Type", "application/x-www-form-urlencoded")
	}
	if status, text, err := send(); status != 200 || err == nil || l.left() != "1 0" {
		t.Errorf("torn: %d %q, %v, %s left", status, text, err, l.left())
	}
	l.fault("throttle=next:1", "lost-response=next:1")
	if status, text, err := send(); status != 403 || !strings.Contains(text, "<Code>RequestThrottled</Code>") || err != nil {
		t.Errorf("throttle: %d %q, %v", status, text, err)
	}
	if status, text, err := send(); status != 0 || err == nil || l.left() != "2 0" {
		t.Errorf("lost-response: %d %q, %v, %s left", status, text, err, l.left())
	}
}
