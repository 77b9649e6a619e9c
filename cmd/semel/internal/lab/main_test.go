package lab

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/verdict"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/worker"
)

// workerEnv makes the test binary a worker process.
const workerEnv = "SEMEL_LAB_TEST_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) == "1" {
		os.Exit(worker.Main(nil))
	}
	if os.Getenv("SEMEL_LAB_TEST_PARENT") == "1" {
		exe, _ := os.Executable()
		_ = os.Unsetenv("SEMEL_LAB_TEST_PARENT")
		o := DefaultDemo()
		o.Seed, o.Command, o.Env = 5, []string{exe}, []string{workerEnv + "=1"}
		_, err := RunDemo(context.Background(), o, nil)
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// demo runs the demo with the test binary as its workers.
func demo(t *testing.T, o DemoOptions) (verdict.Verdict, error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Command, o.Env = []string{exe}, []string{workerEnv + "=1"}
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	return RunDemo(ctx, o, func(line string) { t.Log(line) })
}
