package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/api/asltest"
	"github.com/semel-dev/semel/driver"
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

// TestSeedsMachineLosesIt runs the published machine, which skips every duplicate. It shows that the test above can fail.
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

// TestResponsesGetLost loses requests and responses at each step: the same request again is the same claim and has the same end.
func TestResponsesGetLost(t *testing.T) {
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
						r.t.Errorf("it took %v: an execution waited for its own lease, whose response was lost", took)
					}
				})
			})
		}
	}
}

// TestGatewayInFront: what stands before the API throttles and fails now and then. A file that was processed is completed all the
// same, and not processed once more.
func TestGatewayInFront(t *testing.T) {
	for _, status := range []int{429, 500, 502, 503, 504} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			each(t, everyMachine, func(r *room) {
				r.gateway = func(_ string, n int) int {
					if n%3 != 0 {
						return status
					}
					return 0
				}
				r.takes = 5 * time.Minute
				r.fails = func(run int, _ map[string]any) error {
					if run == 1 {
						return errors.New("out of memory")
					}
					return nil
				}
				r.ends([]*execution{r.start("a", uploaded("x.csv", 1, 1)), r.start("b", uploaded("x.csv", 1, 2))}, "Done", "SkipProcessing")
				r.ran(2)
			})
		})
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
