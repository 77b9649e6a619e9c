package emf

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"
)

// Units of CloudWatch.
const (
	count   = "Count"
	seconds = "Seconds"
)

// The limits of the format.
const (
	maxValues     = 100 // of one metric in one line
	maxDimensions = 30
)

type metric struct {
	Name string `json:"Name"`
	Unit string `json:"Unit"`
}

type directive struct {
	Namespace  string     `json:"Namespace"`
	Dimensions [][]string `json:"Dimensions"`
	Metrics    []metric   `json:"Metrics"`
}

// line is one JSON object: a directive for CloudWatch, and the values.
type line struct {
	at     time.Time
	d      directive
	values map[string]any
}

func newLine(namespace string, at time.Time, dimensions [][2]string) *line {
	l := &line{at: at, d: directive{Namespace: namespace, Dimensions: [][]string{{}}}, values: map[string]any{}}
	for _, d := range dimensions {
		l.d.Dimensions[0] = append(l.d.Dimensions[0], d[0])
		l.values[d[0]] = d[1]
	}
	return l
}

func (l *line) add(name, unit string, v any) {
	l.d.Metrics = append(l.d.Metrics, metric{name, unit})
	l.values[name] = v
}

func (l *line) write(w io.Writer) error {
	l.values["_aws"] = map[string]any{"Timestamp": l.at.UnixMilli(), "CloudWatchMetrics": []directive{l.d}}
	b, err := json.Marshal(l.values)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// check refuses names that CloudWatch would drop silently.
func check(namespace string, dimensions [][2]string) error {
	if !takes(namespace, 256) || strings.HasPrefix(namespace, "AWS/") {
		return fmt.Errorf("emf: namespace %.60q: write 1 to 256 printable ASCII characters, that begin with neither AWS/ nor a colon", namespace)
	}
	if len(dimensions) > maxDimensions {
		return fmt.Errorf("emf: %d dimensions: there are at most %d", len(dimensions), maxDimensions)
	}
	for _, d := range dimensions {
		if !takes(d[0], 250) || !takes(d[1], 1024) {
			return fmt.Errorf("emf: dimension %.60q=%.60q: a name has 1 to 250 characters, a value 1 to 1024; printable ASCII, not spaces "+
				"alone, and no colon at the beginning", d[0], d[1])
		}
	}
	return nil
}

// takes reports that CloudWatch accepts a text as the name or the value of a dimension.
//
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html
func takes(text string, most int) bool {
	other := func(r rune) bool { return r < ' ' || r > '~' }
	return strings.TrimSpace(text) != "" && len(text) <= most && text[0] != ':' && !strings.ContainsFunc(text, other)
}

// sample keeps as many values as a line may have, each with the same probability.
type sample struct {
	values []float64
	seen   int
}

func (s *sample) add(v float64) {
	s.seen++
	if len(s.values) < maxValues {
		s.values = append(s.values, v)
		return
	}
	if i := rand.IntN(s.seen); i < maxValues { //nolint:gosec // a sample, not a secret
		s.values[i] = v
	}
}
