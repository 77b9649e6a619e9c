package harness

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := Median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
}

// The processor time of a server's child must count while it lives and after it ended.
func TestTreeCPUCountsChildren(t *testing.T) {
	before, err := treeCPU(os.Getpid())
	if err != nil {
		t.Skipf("SKIPPED: this needs Linux: %v", err)
	}
	cmd := exec.Command("sh", "-c", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; read x")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	alive := before
	for deadline := time.Now().Add(2 * time.Minute); alive < before+5*tick; {
		if time.Now().After(deadline) {
			t.Fatalf("a busy child does not count: %v, then %v", before, alive)
		}
		if alive, err = treeCPU(os.Getpid()); err != nil {
			t.Fatal(err)
		}
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // read fails at the end of its input
	after, err := treeCPU(os.Getpid())
	if err != nil || after < alive {
		t.Fatalf("%v while the child lived, %v after it ended: %v", alive, after, err)
	}
}
