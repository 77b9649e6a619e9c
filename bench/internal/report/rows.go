package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/semel-dev/semel/bench/internal/harness"
)

// line is one line of the output: what it was made on, or one measure in one round.
type line struct {
	About *harness.About `json:"about,omitempty"`
	*harness.Row
}

// Read reads the lines of a run. If the input has several runs, their rounds are numbered through, and the first run
// describes the machine.
func Read(r io.Reader) (about harness.About, rows []harness.Row, err error) {
	before, last, load := 0, 0, 0.0
	for dec := json.NewDecoder(r); ; {
		var l line
		switch err := dec.Decode(&l); {
		case errors.Is(err, io.EOF):
			return about, rows, nil
		case err != nil:
			return about, nil, fmt.Errorf("read line %d: %w", len(rows)+1, err)
		}
		if l.About != nil {
			load = l.About.Load
			if before = last; before == 0 {
				about = *l.About
			}
			continue
		}
		if l.Row == nil {
			return about, nil, fmt.Errorf("line %d is neither a row nor describes a machine", len(rows)+1)
		}
		l.Round += before
		l.Load = load
		last = max(last, l.Round)
		rows = append(rows, *l.Row)
	}
}
