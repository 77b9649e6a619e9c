package cli

import (
	"slices"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/scenarios"
)

// TestS3_52_AllIsFastAndSlow: --all is every scenario, --fast and --slow are the two halves of it.
func TestS3_52_AllIsFastAndSlow(t *testing.T) {
	names := func(o labRun) (out []string) {
		chosen, err := o.scenarios(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range chosen {
			if o.fast && s.Slow || o.slow && !s.Slow {
				t.Errorf("%s is in the wrong half", s.Name)
			}
			out = append(out, s.Name)
		}
		return out
	}
	fast, slow, all := names(labRun{all: true, fast: true}), names(labRun{all: true, slow: true}), names(labRun{all: true})
	if !slices.Equal(all, scenarios.Names()) || len(fast) == 0 || len(slow) == 0 || len(fast)+len(slow) != len(all) {
		t.Errorf("all %v, fast %v, slow %v", all, fast, slow)
	}
	for _, o := range []labRun{{}, {fast: true}, {slow: true}, {all: true, fast: true, slow: true}} {
		if chosen, err := o.scenarios(nil); err == nil {
			t.Errorf("%+v chooses %d scenarios", o, len(chosen))
		}
	}
	if _, err := (labRun{all: true}).scenarios([]string{"happy"}); err == nil {
		t.Error("--all takes a name")
	}
}
