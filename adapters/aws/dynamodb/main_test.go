package dynamodb

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain collects garbage less often: a hundred small fakes at once keep little, and make much.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}
