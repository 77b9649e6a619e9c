package sim

import (
	"context"
	"testing"
	"time"
)

func TestSeeds(t *testing.T) {
	r := Run(context.Background(), Options{Seeds: 5000})
	t.Logf("%d seeds in %v: %+v", r.Seeds, r.Elapsed, r.Stats)
	for i := range r.Violations {
		v := &r.Violations[i]
		t.Errorf("%v\n%s", v, v.Trace)
		if i > 0 {
			break
		}
	}
	_ = time.Now
}
