package cli

import (
	"encoding/json"
	"os"

	"github.com/semel-dev/semel/cmd/semel/internal/load"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// leastLoad is how many messages a load test needs to be one.
const leastLoad = 100

// loadTest judges the result of semel bench in a file, "" = there is none.
func (x *inspection) loadTest(file string) error {
	if file == "" {
		return nil
	}
	var r load.Result
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || r.N == 0 {
		return output.Usage("--bench %s is no result of a load test", file).WithHint("semel bench --n 100 -o json > %s", file)
	}
	for _, c := range r.Checks {
		if !c.OK {
			x.note(levelDanger, "load test", "semel bench", "%s: %s", c.Name, c.Detail)
		}
	}
	switch {
	case r.Done != r.N:
		x.note(levelDanger, "load test", "semel bench", "%d of %d messages came to an end", r.Done, r.N)
	case r.N < leastLoad:
		x.note(levelWarning, "load test", "semel bench --n 100", "%d messages are too few to show anything", r.N)
	default:
		x.note(levelOK, "load test", "", "%d messages sent, %d done, %.0f a second", r.N, r.Done, r.Throughput)
	}
	return nil
}
