package worker

import (
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// freezerEnv makes the test binary say that it is there to be frozen, again and again, and write a byte after each thaw.
const freezerEnv = "SEMEL_LAB_TEST_FREEZER"

// times is how often: a signal that is slow to land is rare.
const times = 300

func TestMain(m *testing.M) {
	if os.Getenv(freezerEnv) != "1" {
		os.Exit(m.Run())
	}
	freeze := freezer()
	for range times {
		_, _ = os.Stdout.Write([]byte{'!'})
		freeze()
		_, _ = os.Stdout.Write([]byte{'.'})
	}
	os.Exit(0)
}

// TestFreezeHoldsItsCaller: nothing of what comes after a freeze may happen before the thaw.
func TestFreezeHoldsItsCaller(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), freezerEnv+"=1", "GOMAXPROCS=8")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	pipe, ok := out.(*os.File)
	if !ok {
		t.Fatalf("the pipe is a %T", out)
	}
	for i := range times {
		if _, err := io.ReadFull(pipe, make([]byte, 1)); err != nil {
			t.Fatalf("freeze %d: %v", i+1, err)
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatalf("freeze %d: it did not stop: %v, %v", i+1, status, err)
		}
		if n := there(t, pipe); n > 0 {
			t.Fatalf("freeze %d: it went on before it was thawed", i+1)
		}
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pipe, make([]byte, 1)); err != nil {
			t.Fatalf("thaw %d: %v", i+1, err)
		}
	}
}

// there reads what is in a pipe already, and returns how much it was.
func there(t *testing.T, pipe *os.File) (n int) {
	t.Helper()
	raw, err := pipe.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _ = syscall.Read(int(fd), make([]byte, 16)) // no data: -1
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
