package campaign

import (
	"encoding/base64"
	"flag"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/semeltest"
)

var seedFlag = flag.Uint64("seed", 0, "simulate this seed only, and print its history")

func bytesOf(it fakedynamodb.Item, name string) string {
	s, _ := it[name]["B"].(string)
	b, _ := base64.StdEncoding.DecodeString(s)
	return string(b)
}

// TestCampaign: whatever fails, every key takes effect exactly once (collected and keyed effects), or as often as its record
// accounts for (plain ones), or is a dead letter. It simulates as many seeds as time allows. A failure prints its seed and
// its history. go test -run TestCampaign -seed N simulates it again with the same plan and the same faults, but with another
// order of goroutines.
func TestCampaign(t *testing.T) {
	if *seedFlag > 0 {
		v := simulate(t, planOf(*seedFlag), nil)
		t.Log(v.String())
		if len(v.wrong) > 0 {
			t.Fail()
		}
		return
	}
	budget := 30 * time.Second / time.Duration(semeltest.Sampled(10))
	began := time.Now()
	var next atomic.Uint64
	var mu sync.Mutex
	var sum verdict
	sum.counts = map[string]int{}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for time.Since(began) < budget && !t.Failed() {
				began := time.Now()
				v := simulate(t, planOf(next.Add(1)), nil)
				if d := time.Since(began); d > 3*time.Second {
					t.Logf("seed %d took %v", v.plan.seed, d) // it made no progress
				}
				mu.Lock()
				sum.add(v)
				mu.Unlock()
				if len(v.wrong) > 0 {
					t.Error(v.String())
				}
			}
		})
	}
	workers.Wait()
	t.Logf("%d seeds, %d messages, %d runs, %d dead letters, %d uncertain moments, %v of virtual time in %v; faults: %v",
		next.Load(), sum.messages, sum.runs, sum.deadLetters, sum.doubts, sum.took.Round(time.Minute), time.Since(began).Round(time.Second), sum.counts)
}

func (v *verdict) add(o verdict) {
	v.messages += o.messages
	v.runs += o.runs
	v.deadLetters += o.deadLetters
	v.doubts += o.doubts
	v.took += o.took
	for k, n := range o.counts {
		v.counts[k] += n
	}
}
