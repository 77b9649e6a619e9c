package driver

import (
	"fmt"
	"strings"
	"time"
)

// DurationText formats a duration for sentences: 14 days, 1 day, 36h, 15m, 1m30s, 200ms. It is not meant to be parsed.
func DurationText(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "1 day"
	case d > day && d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
