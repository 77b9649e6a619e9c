package driver_test

import (
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
)

func TestDurationText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 200 * time.Millisecond: "200ms", 9 * time.Second: "9s", 90 * time.Second: "1m30s", 15 * time.Minute: "15m",
		time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 10 * time.Hour: "10h", 36 * time.Hour: "36h", 24 * time.Hour: "1 day",
		336 * time.Hour: "14 days", 24*time.Hour + time.Minute: "24h1m", time.Second + 1: "1.000000001s", 100 * time.Minute: "1h40m",
		time.Minute: "1m", 30 * time.Hour: "30h", 20 * time.Minute: "20m",
	} {
		if got := driver.DurationText(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
