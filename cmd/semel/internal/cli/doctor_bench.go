package cli

import (
	"encoding/json"
	"os"

	"github.com/semel-dev/semel/cmd/semel/internal/load"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/ops"
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
		x.When(!c.OK, ops.LevelDanger, "load test", "semel bench", "%s: %s", c.Name, c.Detail)
	}
	switch {
	case r.Done != r.N:
		x.Add(ops.LevelDanger, "load test", "semel bench", "%d of %d messages came to an end", r.Done, r.N)
	case r.N < leastLoad:
		x.Add(ops.LevelWarning, "load test", "semel bench --n 100", "%d messages are too few to show anything", r.N)
	default:
		x.Add(ops.LevelOK, "load test", "", "%d messages sent, %d done, %.0f a second", r.N, r.Done, r.Throughput)
	}
	return nil
}
