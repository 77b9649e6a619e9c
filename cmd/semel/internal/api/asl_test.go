package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/api/asltest"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

const machines = "../../../../deploy/aws/stepfunctions/"

func load(t *testing.T, name string) *asltest.Machine {
	t.Helper()
	m, err := asltest.Load(machines + name + ".asl.json")
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// uploaded is the event of an upload, in a copy with an id and a time of its own.
func uploaded(object string, sequencer, copyID int) string {
	return fmt.Sprintf(`{"id":"event-%d","time":"2026-11-21T00:00:%02dZ","source":"aws.s3","detail-type":"Object Created","detail":{
		"bucket":{"name":"reports"},"object":{"key":%q,"etag":"e%d","sequencer":"%018X","size":5}}}`,
		copyID, copyID, object, sequencer, sequencer)
}

// room is the API on a store in memory, the function that the machines call, and what it did.
type room struct {
	t       *testing.T
	m       *asltest.Machine
	handler http.Handler
	store   *memory.Store
	// takes is how long the function works; fails makes its n-th run fail, from 1; hit is called with each request and may
	// break the connection before it, or after it.
	takes time.Duration
	fails func(run int, payload map[string]any) error
	hit   func(path string, call int) (before, after bool)

	working sync.WaitGroup
	mu      sync.Mutex
	calls   map[string]int
	runs    []map[string]any
	at      map[string]int // how many work on an object
	overlap bool
	fence   map[string]json.Number
	stale   int
	effects map[string]int // by effect key: a service that honours it does each once
}

func newRoom(t *testing.T, name string) *room {
	store := memory.NewStore()
	s := &Server{Store: store, Consumer: "any", MaxBody: 1 << 20, Retention: 14 * 24 * time.Hour, Log: slog.New(slog.DiscardHandler)}
	return &room{
		t: t, m: load(t, name), handler: s.Handler(), store: store, takes: time.Minute,
		calls: map[string]int{}, at: map[string]int{}, fence: map[string]json.Number{}, effects: map[string]int{},
	}
}

// api carries a request to the server, on a connection that may break.
func (r *room) api(req *http.Request) (int, []byte, error) {
	r.mu.Lock()
	r.calls[req.URL.Path]++
	n := r.calls[req.URL.Path]
	r.mu.Unlock()
	before, after := false, false
	if r.hit != nil {
		before, after = r.hit(req.URL.Path, n)
	}
	if before {
		return 0, nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	r.handler.ServeHTTP(w, req)
	if after {
		return 0, nil, errors.New("connection reset")
	}
	b, err := io.ReadAll(w.Body)
	return w.Code, b, err
}

// work is the function: it writes to a resource that compares the fence, and has an effect under the effect key.
func (r *room) work(payload map[string]any) (any, error) {
	// The job of heartbeat.asl.json gets its names in another form.
	object, effect := "job", ""
	if in, ok := payload["input"].(map[string]any); ok {
		object = in["detail"].(map[string]any)["object"].(map[string]any)["key"].(string)
		effect = payload["effect_key"].(string)
	}
	r.working.Add(1)
	defer r.working.Done()
	r.mu.Lock()
	r.runs = append(r.runs, payload)
	run := len(r.runs)
	r.at[object]++
	r.overlap = r.overlap || r.at[object] > 1
	r.mu.Unlock()
	time.Sleep(r.takes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[object]--
	if r.fails != nil {
		if err := r.fails(run, payload); err != nil {
			return nil, err
		}
	}
	if fence, ok := payload["fence"].(json.Number); ok {
		seen, _ := r.fence[object].Int64()
		if n, _ := fence.Int64(); n < seen {
			r.stale++
			return nil, &asltest.Err{Name: "StaleFence", Cause: "the resource has seen a newer token"}
		}
		r.fence[object] = fence
	}
	r.effects[effect]++
	return map[string]any{"rows": json.Number("3")}, nil
}

// execution is one that runs.
type execution struct {
	end    string
	output any
	err    error
	stop   context.CancelFunc
	done   chan struct{}
	visits []string
}

// start starts an execution with an event.
func (r *room) start(name, event string) *execution {
	e := &execution{done: make(chan struct{})}
	ctx, stop := context.WithCancel(r.t.Context())
	e.stop = stop
	var mu sync.Mutex
	visit := func(s string) { mu.Lock(); e.visits = append(e.visits, s); mu.Unlock() }
	go func() {
		defer close(e.done)
		e.end, e.output, e.err = r.m.Run(ctx, asltest.World{API: r.api, Work: r.work, Name: name, Visit: visit}, []byte(event))
	}()
	return e
}

// ends checks where executions ended.
func (r *room) ends(es []*execution, want ...string) {
	r.t.Helper()
	var got []string
	for _, e := range es {
		<-e.done
		got = append(got, e.end)
		if fail := (*asltest.Err)(nil); e.err != nil && !errors.As(e.err, &fail) && !errors.Is(e.err, context.Canceled) {
			r.t.Errorf("an execution is broken: %v, after %v", e.err, e.visits)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("executions ended in %v, want %v", got, want)
	}
}

func (r *room) ran(want int) {
	r.t.Helper()
	if len(r.runs) != want {
		r.t.Errorf("the function ran %d times, want %d: %v", len(r.runs), want, r.runs)
	}
}

// each plays a scene on machines, in virtual time.
func each(t *testing.T, names []string, scene func(*room)) {
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom(t, name)
				scene(r)
				synctest.Wait()
				r.working.Wait()
			})
		})
	}
}

var (
	everyMachine = []string{"guarded", "locked", "heartbeat"}
	functions    = []string{"guarded", "locked"}
)

// TestS2_19_Machines: the files are state machines: known fields, every name leads to a state, every state is reached and leads
// to an end, every choice has a default.
func TestS2_19_Machines(t *testing.T) {
	for _, name := range everyMachine {
		load(t, name)
	}
	files, err := os.ReadDir(machines)
	if err != nil || len(files) != len(everyMachine) {
		t.Errorf("%v %v: this test has not seen them all", files, err)
	}
}

// TestS2_09_OneOfTwoExecutions: two executions of one upload at the same time, and one more later: the file is processed once,
// the second waits and skips, and so does the third, with the first one's result.
func TestS2_09_OneOfTwoExecutions(t *testing.T) {
	each(t, everyMachine, func(r *room) {
		es := []*execution{r.start("a", uploaded("x.csv", 1, 1)), r.start("b", uploaded("x.csv", 1, 2))}
		r.ends(es, "Done", "SkipProcessing")
		late := r.start("c", uploaded("x.csv", 1, 3))
		r.ends([]*execution{late}, "SkipProcessing")
		r.ran(1)
		body := late.output.(map[string]any)["claim"].(map[string]any)["ResponseBody"].(map[string]any)
		if text := fmt.Sprint(body["result"]); !strings.Contains(text, `"rows":3`) {
			r.t.Errorf("the duplicate knows the result %q", text)
		}
		// Another version of the object is another file.
		r.ends([]*execution{r.start("d", uploaded("x.csv", 2, 4))}, "Done")
		r.ran(2)
	})
}

// TestS2_11_OwnerDies: an execution is stopped while it works. In the published design the file is never processed again; here
// who waited goes on when the lease has ended, under the same effect key and with a greater token.
func TestS2_11_OwnerDies(t *testing.T) {
	each(t, everyMachine, func(r *room) {
		r.takes = 5 * time.Minute
		dies := r.start("a", uploaded("x.csv", 1, 1))
		time.Sleep(time.Minute)
		waits := r.start("b", uploaded("x.csv", 1, 2))
		time.Sleep(time.Minute)
		dies.stop()
		<-dies.done
		if dies.end != "ProcessFile" && dies.end != "ProcessAndBeat" {
			r.t.Errorf("it died in %s", dies.end)
		}
		r.ends([]*execution{waits}, "Done")
		r.ran(2)
		if r.m.States["ProcessFile"] != nil {
			a, b := r.runs[0], r.runs[1]
			if a["effect_key"] != b["effect_key"] || b["unknown"] != true || len(r.effects) != 1 || a["fence"] == b["fence"] {
				r.t.Errorf("%v\n%v", a, b)
			}
		}
		r.ends([]*execution{r.start("c", uploaded("x.csv", 1, 3))}, "SkipProcessing")
	})
}

// TestSeedsMachineLosesIt is the published machine: whoever is told of a duplicate skips. It is here to show that the test above
// can fail.
func TestSeedsMachineLosesIt(t *testing.T) {
	each(t, []string{"guarded"}, func(r *room) {
		choices := r.m.States["Choice"].Choices
		r.m.States["Choice"].Choices, r.m.States["Choice"].Default = choices[:1], "SkipProcessing"
		dies := r.start("a", uploaded("x.csv", 1, 1))
		time.Sleep(30 * time.Second)
		dies.stop()
		r.ends([]*execution{r.start("b", uploaded("x.csv", 1, 2))}, "SkipProcessing") // and nobody else will come
		<-dies.done
		if dies.end != "ProcessFile" {
			r.t.Errorf("it died in %s", dies.end)
		}
	})
}

// TestAnswersGetLost: requests and answers get lost at each step; the same request again is the same claim and the same end.
func TestAnswersGetLost(t *testing.T) {
	for _, path := range []string{"/v1/claim", "/v1/complete", "/v1/release", "/v1/extend"} {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s before=%t", path, before), func(t *testing.T) {
				each(t, everyMachine, func(r *room) {
					r.hit = func(p string, n int) (bool, bool) {
						hit := p == path && n%3 != 0
						return hit && before, hit && !before
					}
					r.takes = 10 * time.Minute
					r.fails = func(run int, _ map[string]any) error {
						if run == 1 {
							return errors.New("out of memory")
						}
						return nil
					}
					began := time.Now()
					r.ends([]*execution{r.start("a", uploaded("x.csv", 1, 1)), r.start("b", uploaded("x.csv", 1, 2))}, "Done", "SkipProcessing")
					r.ran(2)
					if took := time.Since(began); took > time.Hour {
						r.t.Errorf("it took %v: somebody waited for the lease of its own lost answer", took)
					}
				})
			})
		}
	}
}

// TestFailuresAreTriedAgain: a function that fails is tried again by whoever comes first; what fails always ends, and its key is
// free for another execution.
func TestFailuresAreTriedAgain(t *testing.T) {
	each(t, everyMachine, func(r *room) {
		failures := 2
		r.fails = func(run int, _ map[string]any) error {
			if run <= failures {
				return errors.New("no memory")
			}
			return nil
		}
		r.ends([]*execution{r.start("a", uploaded("x.csv", 1, 1))}, "Done")
		r.ran(3)
		failures = 3 + 5
		r.ends([]*execution{r.start("b", uploaded("y.csv", 1, 2))}, "ProcessingFailed")
		r.ran(8)
		r.ends([]*execution{r.start("c", uploaded("y.csv", 1, 3))}, "Done")
		r.ran(9)
	})
}

// TestLaw11_TimeoutDoesNotRelease: a function that outlives its state may still be at work: its key stays taken until the lease
// has ended, and nobody works beside it.
func TestLaw11_TimeoutDoesNotRelease(t *testing.T) {
	each(t, functions, func(r *room) {
		r.takes = 19 * time.Minute // longer than TimeoutSeconds, shorter than the lease
		a := r.start("a", uploaded("x.csv", 1, 1))
		time.Sleep(time.Minute)
		b := r.start("b", uploaded("x.csv", 1, 2))
		<-a.done
		r.takes = time.Minute
		r.ends([]*execution{a, b}, "StillRunning", "Done")
		r.ran(2)
		if r.overlap {
			r.t.Error("two worked at once")
		}
		if r.calls["/v1/release"] > 0 && r.m.States["Lock"] == nil {
			r.t.Error("it was released")
		}
	})
}

// TestHeartbeatOfHours: work of three hours with a lease of ten minutes is not taken over; when its execution is stopped it is,
// after ten minutes.
func TestHeartbeatOfHours(t *testing.T) {
	each(t, []string{"heartbeat"}, func(r *room) {
		r.takes = 3 * time.Hour
		a, b := r.start("a", uploaded("x.csv", 1, 1)), r.start("b", uploaded("x.csv", 1, 2))
		r.ends([]*execution{a, b}, "Done", "SkipProcessing")
		r.ran(1)

		dies := r.start("c", uploaded("y.csv", 1, 3))
		time.Sleep(2 * time.Hour)
		waits := r.start("d", uploaded("y.csv", 1, 4))
		time.Sleep(10 * time.Minute)
		dies.stop()
		stopped := time.Now()
		for len(r.runs) < 3 {
			time.Sleep(time.Second)
		}
		if after := time.Since(stopped); after > 11*time.Minute {
			r.t.Errorf("taken over after %v", after)
		}
		<-waits.done
		<-dies.done
		if waits.end != "Done" {
			r.t.Errorf("%s %v", waits.end, waits.err)
		}
	})
}

// TestLockedUploads: executions of different uploads of one object never work at the same time, all of them work, and the
// resource sees tokens that grow; one whose lease was lost is refused by the resource.
func TestLockedUploads(t *testing.T) {
	each(t, []string{"locked"}, func(r *room) {
		r.takes = 10 * time.Minute
		var es []*execution
		for i := range 5 {
			es = append(es, r.start(fmt.Sprint("e", i), uploaded("x.csv", i, i)))
		}
		r.ends(es, "Done", "Done", "Done", "Done", "Done")
		if r.ran(5); r.overlap || r.stale > 0 {
			r.t.Errorf("overlap %t, %d stale", r.overlap, r.stale)
		}
		locks, err := r.store.Records(r.t.Context(), driver.RecordFilter{Consumer: "csv-lock"})
		if err != nil || len(locks) != 1 || r.fence["x.csv"] != json.Number(fmt.Sprint(locks[0].Token)) {
			r.t.Errorf("the resource saw the token %s, the lock is %+v (%v)", r.fence["x.csv"], locks, err)
		}
		// One whose function hangs for longer than its lock, and wakes up when another has worked.
		r.takes = 50 * time.Minute
		hangs := r.start("hangs", uploaded("x.csv", 8, 8))
		time.Sleep(time.Minute)
		r.takes = time.Minute
		next := r.start("next", uploaded("x.csv", 9, 9))
		r.ends([]*execution{hangs, next}, "StillRunning", "Done")
		time.Sleep(time.Hour)
		if r.stale != 1 {
			r.t.Errorf("the late writer was refused %d times, want once", r.stale)
		}
	})
}

// TestNeedsAPerson: a key that failed for good or waits for a person is no success, and nothing is run.
func TestNeedsAPerson(t *testing.T) {
	each(t, everyMachine, func(r *room) {
		first := r.start("a", uploaded("x.csv", 1, 1))
		for len(r.runs) == 0 {
			time.Sleep(time.Second)
		}
		first.stop()
		<-first.done
		records, err := r.store.Records(r.t.Context(), driver.RecordFilter{Consumer: "csv-processing"})
		if err != nil || len(records) != 1 {
			r.t.Fatal(records, err)
		}
		rec := records[0]
		h := driver.Hold{Key: rec.Key, Generation: rec.Generation, Token: rec.Token, Nonce: rec.Nonce}
		out, err := r.store.Finish(r.t.Context(), driver.Finish{Hold: h, Final: driver.Park, Keep: time.Hour, Reason: "by hand"})
		if err != nil || out[0] != driver.Applied {
			r.t.Fatal(out, err)
		}
		r.ends([]*execution{r.start("b", uploaded("x.csv", 1, 2))}, "NeedsAPerson")
		r.ran(1)
	})
}
