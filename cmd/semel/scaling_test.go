package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

// TestScalingLimits makes the table of limits in docs/scaling.md out of what the queues report.
//
//	go test ./cmd/semel -run TestScalingLimits -update
func TestScalingLimits(t *testing.T) {
	var b strings.Builder
	b.WriteString("| queue | longest run | messages of one call | messages are kept for | deliveries are counted | groups in order |\n|---|---|---|---|---|---|\n")
	seen := map[string]bool{}
	for _, p := range places(t) {
		if p.queue == nil {
			continue
		}
		if f := p.queue.Features(); !seen[f.Kind] {
			seen[f.Kind] = true
			b.WriteString(limitsOf(p.kind, f))
		}
	}
	compareTable(t, "scaling", "limits", "TestScalingLimits", b.String())
}

func limitsOf(name string, f driver.QueueFeatures) string {
	duration := func(d time.Duration, none string) string {
		if d == 0 {
			return none
		}
		return fmt.Sprintf("%g h", d.Hours())
	}
	yes := map[bool]string{true: "yes", false: "no"}
	batch := cmp.Or(strings.TrimPrefix(strconv.Itoa(f.MaxBatch), "0"), "no limit")
	name, _, _ = strings.Cut(name, ",")
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |\n", name, duration(f.MaxVisible, "no limit"), batch, duration(f.Retention, "no limit"),
		yes[f.Counts], yes[f.Orders])
}
