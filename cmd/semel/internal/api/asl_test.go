package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/memory"
)

const machines = "../../../../deploy/aws/stepfunctions/"

var everyMachine = []string{"guarded", "locked", "heartbeat"}

// TestS2_19_Machines: each file is a state machine whose paths keep the order of a message: claim, run, complete
// (inspect).
func TestS2_19_Machines(t *testing.T) {
	for _, name := range everyMachine {
		for _, finding := range load(t, name).inspect() {
			t.Errorf("%s: %s", name, finding)
		}
	}
	files, err := os.ReadDir(machines)
	if err != nil || len(files) != len(everyMachine) {
		t.Errorf("%v %v: this test has not seen them all", files, err)
	}
}

// TestS2_19_FieldsOfResponses: every field that a machine reads from a response of the API is one that the API has.
func TestS2_19_FieldsOfResponses(t *testing.T) {
	has := map[string]bool{"outcome": true} // of extend
	for _, f := range reflect.VisibleFields(reflect.TypeFor[claimReply]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		has[name] = true
	}
	for _, name := range everyMachine {
		for _, m := range regexp.MustCompile(`ResponseBody\.(\w+)`).FindAllSubmatch(file(t, name), -1) {
			if !has[string(m[1])] {
				t.Errorf("%s reads %s, which no response has", name, m[1])
			}
		}
	}
}

// TestSeedsMachineLosesIt and its neighbours: inspect finds each of these mistakes. The first one is the published
// machine, which skips every duplicate: when the owner dies, the file is never processed.
func TestSeedsMachineLosesIt(t *testing.T) {
	for _, p := range []struct {
		name, machine, want string
		change              func(map[string]*state)
	}{
		{"every duplicate is skipped", "guarded", "a duplicate that is not completed leads to SkipProcessing",
			func(s map[string]*state) {
				s["Choice"].Choices, s["Choice"].Default = s["Choice"].Choices[:1], "SkipProcessing"
			}},
		{"busy is skipped", "heartbeat", "a duplicate that is not completed leads to SkipProcessing",
			func(s map[string]*state) {
				s["WaitForTheOther"].Next = "SkipProcessing"
			}},
		{"busy gives up", "guarded", "busy does not lead back to a claim", func(s map[string]*state) {
			s["Choice"].Choices[2].Next = "NeedsAPerson"
		}},
		{"busy does not wait", "guarded", "busy does not lead to a wait of retry_after_seconds",
			func(s map[string]*state) {
				s["WaitForTheOther"].SecondsPath, s["WaitForTheOther"].Seconds = "", 1
			}},
		{"work before the claim", "guarded", "ProcessFile runs without a claim", func(s map[string]*state) {
			s["NewAttempt"].Next = "ProcessFile"
		}},
		{"work of a duplicate", "locked", "ProcessFile runs without a claim", func(s map[string]*state) {
			s["Choice"].Default = "ProcessFile"
		}},
		{"no completion", "guarded", "work leads to Done without a completion", func(s map[string]*state) {
			s["ProcessFile"].Next = "Done"
		}},
		{"a lost lease is a success", "heartbeat", "work leads to Done without a completion",
			func(s map[string]*state) {
				s["Complete"].Catch[0].Next = "WorkDone"
			}},
		{"a timeout releases", "guarded", "after a timeout, Release releases", func(s map[string]*state) {
			s["ProcessFile"].Catch[0].Next = "Release"
		}},
		{"a timeout is a failure", "heartbeat", "ProcessFile does not catch States.Timeout before any other error",
			func(s map[string]*state) {
				s["ProcessFile"].Catch = s["ProcessFile"].Catch[1:]
			}},
		{"a failure keeps the key", "guarded", "a failure of ProcessFile leads to an end without a release",
			func(s map[string]*state) {
				s["ProcessFile"].Catch[1].Next = "ProcessingFailed"
			}},
		{"work outlives its lease", "guarded", "ProcessFile may take 1200 s, longer than the lease",
			func(s map[string]*state) {
				s["ProcessFile"].TimeoutSeconds = 1200
			}},
		{"a heartbeat too rare", "heartbeat", "Beat waits for 400 s",
			func(s map[string]*state) { s["Beat"].Seconds = 400 }},
		{"no retry", "heartbeat", "Extend does not repeat", func(s map[string]*state) { s["Extend"].Retry = nil }},
		{"a gateway's error is final", "guarded", "Complete does not repeat", func(s map[string]*state) {
			s["Complete"].Retry[0].ErrorEquals = s["Complete"].Retry[0].ErrorEquals[:3]
		}},
		{"a repeated claim is another claim", "guarded", "CheckExecution computes a part of its request",
			func(s map[string]*state) {
				p := s["CheckExecution"].Parameters
				s["CheckExecution"].Parameters = bytes.Replace(p, []byte("$.attempt.nonce"), []byte("States.UUID()"), 1)
			}},
		{"one nonce for two attempts", "guarded", "Release leads to CheckExecution with the same nonce",
			func(s map[string]*state) {
				s["Pause"].Next = "CheckExecution"
			}},
		{"one nonce for two locks", "locked", "UnlockBusy leads to Lock with the same nonce",
			func(s map[string]*state) {
				s["WaitForTheOther"].Next = "Lock"
			}},
		{"a lock is kept", "locked", "the lock is still held in Done",
			func(s map[string]*state) { s["Complete"].Next = "Done" }},
		{"a lock is kept by who waits", "locked", "the lock is still held in WaitForTheOther",
			func(s map[string]*state) {
				s["Choice"].Choices[2].Next = "WaitForTheOther"
			}},
		{"a dropped input", "guarded", "Complete drops its input",
			func(s map[string]*state) { s["Complete"].ResultPath = "$" }},
		{"a name that leads nowhere", "guarded", `Pause leads to "Nowhere"`,
			func(s map[string]*state) { s["Pause"].Next = "Nowhere" }},
		{"a state that nothing leads to", "guarded", "nothing leads to Pause", func(s map[string]*state) {
			s["TryAgain"].Choices[0].Next = "NewAttempt"
		}},
		{"a loop without an end", "locked", "nothing leads from NewAttempt to an end", func(s map[string]*state) {
			s["NewAttempt"].Next = "NewAttempt"
		}},
		{"no default", "guarded", "TryAgain has no Default", func(s map[string]*state) { s["TryAgain"].Default = "" }},
	} {
		t.Run(p.name, func(t *testing.T) {
			m := load(t, p.machine)
			p.change(m.states)
			if found := m.inspect(); !slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, p.want) }) {
				t.Errorf("found %q, want %q", found, p.want)
			}
		})
	}
	for name, old := range map[string][2]string{
		"a misspelt field":           {`"BackoffRate"`, `"BackofRate"`},
		"a field of another type":    {`"Type": "Succeed"`, `"Type": "Succeed", "Retry": []`},
		"both Next and End":          {`"Next": "NewAttempt"`, `"Next": "NewAttempt", "End": true`},
		"a path where a text stands": {`"key.$": "$.key"`, `"key": "$.key"`},
	} {
		b := bytes.ReplaceAll(file(t, "guarded"), []byte(old[0]), []byte(old[1]))
		if m, err := parse(b); err == nil && len(m.inspect()) == 0 {
			t.Errorf("%s: not found", name)
		}
	}
}

// TestS2_09_OneOfTwoExecutions sends the requests of two executions of one upload, and of one more later: the first
// one works, the second waits, the third skips with the first one's result. Each request is sent twice, as after a
// lost response.
func TestS2_09_OneOfTwoExecutions(t *testing.T) {
	each(t, func(x *exchange) {
		a := x.claim("a", 1)
		x.leads(a, "Process")
		b := x.claim("b", 2)
		x.leads(b, "WaitForTheOther")
		if _, body := x.send("Complete", a); body["outcome"] != "applied" {
			x.t.Errorf("%v", body)
		}
		c := x.claim("c", 3)
		x.leads(c, "SkipProcessing")
		if text := fmt.Sprint(c["result"]); !strings.Contains(text, `"rows":3`) {
			x.t.Errorf("the duplicate knows the result %q", text)
		}
	})
}

// TestS2_11_OwnerDies: the execution that owns the key is stopped. Who waits goes on when the lease has ended, under
// the same effect key and with a greater token; what the first one writes afterwards is refused, and its machine
// fails.
func TestS2_11_OwnerDies(t *testing.T) {
	each(t, func(x *exchange) {
		a := x.claim("a", 1)
		b := x.claim("b", 2)
		x.leads(b, "WaitForTheOther")
		for began := time.Now(); b["isDuplicate"] == true && time.Since(began) < time.Hour; b = x.claim("b", 2) {
			wait, err := b["retry_after_seconds"].(json.Number).Int64()
			if err != nil || wait < 1 {
				x.t.Fatal(wait, err)
			}
			time.Sleep(time.Duration(wait) * time.Second)
		}
		x.leads(b, "Process")
		if a["effect_key"] != b["effect_key"] || b["unknown"] != true || fmt.Sprint(a["token"]) >= fmt.Sprint(b["token"]) {
			x.t.Errorf("%v\n%v", a, b)
		}
		for _, late := range []string{"Complete", "Release"} {
			if status, body := x.send(late, a); status != http.StatusConflict {
				x.t.Errorf("%s: %d %v", late, status, body)
			}
		}
		x.send("Complete", b)
		x.leads(x.claim("c", 3), "SkipProcessing")
	})
}

// TestRequestsOfMachines: the requests that the two tests above do not send: a release after a failure, after which
// another attempt works; an extension; a lock, which is free at once when it is released.
func TestRequestsOfMachines(t *testing.T) {
	each(t, func(x *exchange) {
		a := x.claim("a", 1)
		if x.m.states["Extend"] != nil {
			if status, body := x.send("Extend", a); status != http.StatusOK || body["outcome"] != "applied" {
				x.t.Errorf("%d %v", status, body)
			}
		}
		if status, body := x.send("Release", a); status != http.StatusOK {
			x.t.Errorf("%d %v", status, body)
		}
		time.Sleep(time.Minute) // Pause
		again := x.claim("a", 2)
		x.leads(again, "Process")
		if fmt.Sprint(again["attempt"]) != "2" {
			x.t.Errorf("%v", again)
		}
		for _, name := range names(x.m.states) {
			if !x.m.states[name].releases("lock") {
				continue
			}
			_, lock := x.send("Lock", nil)
			if x.next("Locked", lock) != "CheckExecution" {
				x.t.Errorf("%s: %v", name, lock)
			}
			if status, body := x.send(name, lock); status != http.StatusOK {
				x.t.Errorf("%s: %d %v", name, status, body)
			}
			x.nonce++
		}
	})
}

// exchange sends the requests of a machine to the API.
type exchange struct {
	t       *testing.T
	m       *machine
	handler http.Handler
	name    string // of the execution
	nonce   int
}

// each runs a test on every machine, in virtual time.
func each(t *testing.T, test func(*exchange)) {
	for _, name := range everyMachine {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Server{
					Store: memory.NewStore(), Consumer: "any", MaxBody: 1 << 20, Retention: time.Hour,
					Log:   slog.New(slog.DiscardHandler),
					Hosts: web.NewHosts("127.0.0.1:8080", "semel.example.com"), // as the state machines have it
				}
				test(&exchange{t: t, m: load(t, name), handler: s.Handler()})
			})
		})
	}
}

// send sends the request of a state twice, and returns the second response. hold is the claim's response that it is
// about.
func (x *exchange) send(name string, hold map[string]any) (status int, body map[string]any) {
	x.t.Helper()
	var p struct {
		ApiEndpoint, Method string
		Headers             map[string]string
		RequestBody         map[string]any
	}
	if err := json.Unmarshal(x.m.states[name].Parameters, &p); err != nil {
		x.t.Fatal(err)
	}
	nonce := fmt.Sprintf("00000000-0000-4000-8000-%012d", x.nonce+1)
	known := map[string]any{
		"$.key": "reports|x.csv|e1|01", "$.object": "reports|x.csv", "$$.Execution.Name": x.name,
		"$.attempt.nonce": nonce, "$.attempt.lockNonce": nonce, "$.work.result": map[string]any{"rows": 3},
		"$.error.Error": "OutOfMemory", "$.claim.ResponseBody.hold": hold["hold"], "$.lock.ResponseBody.hold": hold["hold"],
	}
	request := map[string]any{}
	for field, v := range p.RequestBody {
		if name, isPath := strings.CutSuffix(field, ".$"); isPath {
			field = name
			if v = known[v.(string)]; v == nil {
				x.t.Fatalf("%s: this test does not know %s", field, p.RequestBody[field+".$"])
			}
		}
		request[field] = v
	}
	text, err := json.Marshal(request)
	if err != nil {
		x.t.Fatal(err)
	}
	for range 2 {
		r := httptest.NewRequestWithContext(x.t.Context(), p.Method, p.ApiEndpoint, bytes.NewReader(text))
		for k, v := range p.Headers {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		x.handler.ServeHTTP(w, r)
		b, err := io.ReadAll(w.Body)
		if err != nil {
			x.t.Fatal(err)
		}
		status, body = w.Code, nil
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.UseNumber()
		if err := dec.Decode(&body); err != nil {
			x.t.Fatalf("%s: %q: %v", name, b, err)
		}
	}
	return status, body
}

// claim sends an attempt's claim.
func (x *exchange) claim(execution string, nonce int) map[string]any {
	x.t.Helper()
	x.name, x.nonce = execution, nonce
	status, body := x.send("CheckExecution", nil)
	if status != http.StatusOK {
		x.t.Fatalf("%d %v", status, body)
	}
	return body
}

// leads checks where the machine goes after the response to a claim: to a state whose name begins with want, if need
// be after it released its lock.
func (x *exchange) leads(claim map[string]any, want string) {
	x.t.Helper()
	got := x.next("Choice", claim)
	if s := x.m.states[got]; s.releases("lock") {
		got = s.Next
	}
	if !strings.HasPrefix(got, want) {
		x.t.Errorf("%v leads to %s, want %s", claim, got, want)
	}
}

// next is where a Choice about a response leads.
func (x *exchange) next(choice string, body map[string]any) string {
	for _, c := range x.m.states[choice].Choices {
		_, field, _ := strings.Cut(c.Variable, ".ResponseBody.")
		if c.BooleanEquals != nil && body[field] == *c.BooleanEquals || c.StringEquals != nil && body[field] == *c.StringEquals {
			return c.Next
		}
	}
	return x.m.states[choice].Default
}

func file(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(machines + name + ".asl.json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func load(t *testing.T, name string) *machine {
	t.Helper()
	m, err := parse(file(t, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// names are the keys of a map in order.
func names[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
