package attack_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/attack"
	"github.com/semel-dev/semel/internal/process"
)

// marked finds the processes with a variable in their environment.
func marked(variable string) []int {
	return process.WithVariable(func(v string) bool { return v == variable })
}

// eventually waits until ok, a minute at most.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestHangs: a handler that never ends does not hang the attack, and is not left behind.
func TestHangs(t *testing.T) {
	mark := "ATTACK_TEST=hangs" + strconv.Itoa(os.Getpid())
	rep, got := run(t, attack.Options{Argv: handler(t, "hangs"), Timeout: 300 * time.Millisecond, Variables: []string{mark}})
	if len(got) != 1 || got["normal"] != unknown || rep.OK() {
		show(t, rep)
		t.Error("verdict")
	}
	if left := marked(mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestFM67_LeavesNothing: what a handler leaves behind ends with the attack.
func TestFM67_LeavesNothing(t *testing.T) {
	mark := "ATTACK_TEST=leaves" + strconv.Itoa(os.Getpid())
	var seen []int
	rep, err := attack.Run(t.Context(), attack.Options{
		Argv: handler(t, "leaves"), Key: "json:/order_id", Variables: []string{mark}, Only: []string{"redelivery"},
	}, func(string) { seen = append(seen, len(marked(mark))) })
	if err != nil || !rep.OK() {
		t.Fatalf("%v, %+v", err, rep)
	}
	if len(seen) != 2 || seen[1] != 0 {
		t.Errorf("processes before the attacks: %v", seen)
	}
	if left := marked(mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestFM67_StopsOnInterrupt: an interrupted attack kills what it started, stopped processes too, and removes its files.
func TestFM67_StopsOnInterrupt(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	mark := "ATTACK_TEST=stops" + strconv.Itoa(os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		// A worker and its handler, which hangs.
		for end := time.Now().Add(time.Minute); len(marked(mark)) < 2 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // the pause between two looks
		}
		cancel()
	}()
	_, err := attack.Run(ctx, attack.Options{Argv: handler(t, "hangs"), Timeout: time.Minute, Variables: []string{mark}}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if left := marked(mark); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestFM67_DiesWithItsParent: when the attack itself is killed, its workers and their handlers are too.
func TestFM67_DiesWithItsParent(t *testing.T) {
	mark := "ATTACK_TEST=parent" + strconv.Itoa(os.Getpid())
	cmd := process.Self(mark, "TMPDIR="+t.TempDir())
	cmd.Args = append(cmd.Args, append([]string{"lab", "attack", "--timeout", "10m", "--"}, handler(t, "hangs")...)...)
	parent := process.StartTest(t, cmd)
	eventually(t, "no handler was started", func() bool { return len(marked(mark)) >= 4 }) // itself, a worker, two handlers
	parent.Kill()
	eventually(t, "processes outlived the attack", func() bool { return len(marked(mark)) == 0 })
}
