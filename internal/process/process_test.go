//go:build unix

package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const roleEnv = "SEMEL_PROCESS_TEST"

// TestMain is also a parent that starts a child, reports it and waits to be killed.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "parent" {
		os.Exit(m.Run())
	}
	p, err := Start(exec.Command("sleep", "600"))
	fmt.Println(p.Pid(), err)
	select {}
}

func sh(t *testing.T, script string) (*Process, *Output) {
	t.Helper()
	o := &Output{}
	cmd := exec.Command("sh", "-c", script)
	cmd.Stdout, cmd.Stderr = o, o
	return StartTest(t, cmd), o
}

func await(t *testing.T, p *Process, o *Output, text string) string {
	t.Helper()
	line, err := p.Await(t.Context(), o, Contains(text))
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestAwait(t *testing.T) {
	p, o := sh(t, "echo one; echo two; exit 3")
	if got := await(t, p, o, "tw"); got != "two" {
		t.Errorf("line %q", got)
	}
	if got := await(t, p, o, "one"); got != "one" { // of the past
		t.Errorf("line %q", got)
	}
	if _, err := p.Await(t.Context(), o, Contains("three")); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("of a process that ended: %v", err)
	}
	if p.Running() || p.Killed() || p.Wait() == nil || p.State().ExitCode() != 3 {
		t.Errorf("state %v, %v", p.State(), p.Wait())
	}
	p, o = sh(t, "echo ready; exec sleep 600")
	await(t, p, o, "ready")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Await(ctx, o, Contains("never")); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("with an ended context: %v", err)
	}
}

// TestKillReachesTheGroup: a child of the process dies too, and one that is frozen.
func TestKillReachesTheGroup(t *testing.T) {
	p, o := sh(t, "sleep 600 & echo child $!; wait")
	child, err := strconv.Atoi(strings.Fields(await(t, p, o, "child"))[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	until(t, "the child outlives its group", func() bool { return Gone(child) })
	if !p.Killed() || !errors.Is(p.Freeze(), os.ErrProcessDone) || !errors.Is(p.Signal(syscall.SIGKILL), os.ErrProcessDone) {
		t.Errorf("killed: %v", p.State())
	}
	p.Kill() // again: nothing happens
}

func TestKillTreeReachesOtherSessions(t *testing.T) {
	if _, err := exec.LookPath("setsid"); err != nil {
		t.Skip("SKIPPED: no setsid")
	}
	p, o := sh(t, "setsid sh -c 'echo child $$; exec sleep 600' & wait")
	child, err := strconv.Atoi(strings.Fields(await(t, p, o, "child"))[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := p.KillTree(); err != nil || !Gone(child) || p.Running() {
		t.Errorf("%v; the child is gone: %v", err, Gone(child))
	}
	if err := p.KillTree(); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	p, o := sh(t, "echo ready; read x; echo thawed")
	await(t, p, o, "thawed") // its input is empty
	in, w := io.Pipe()
	cmd := exec.Command("cat")
	o = &Output{}
	cmd.Stdin, cmd.Stdout = in, o
	p = StartTest(t, cmd)
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	if _, state := readStat(fmt.Sprintf("/proc/%d/stat", p.Pid())); state != 'T' && state != 'X' { // X: no /proc here
		t.Errorf("state %c", state)
	}
	_, _ = fmt.Fprintln(w, "hello")
	if o.String() != "" {
		t.Errorf("a frozen process wrote %q", o)
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	await(t, p, o, "hello")
	_ = w.Close()
	if err := p.Wait(); err != nil {
		t.Error(err)
	}
}

func TestStop(t *testing.T) {
	p, o := sh(t, "trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done")
	await(t, p, o, "ready")
	if err := p.Stop(time.Minute); err != nil || p.Killed() {
		t.Errorf("%v, %v", err, p.State())
	}
	p, o = sh(t, "trap '' TERM; echo ready; while :; do sleep 0.01; done")
	await(t, p, o, "ready")
	if err := p.Stop(time.Millisecond); err == nil || !p.Killed() {
		t.Errorf("of a process that does not end: %v, %v", err, p.State())
	}
}

// TestFM67_DiesWithItsParent: a process ends with the one that started it, a detached one does not.
func TestFM67_DiesWithItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: this system has no parent-death signal")
	}
	o := &Output{}
	cmd := Self(roleEnv + "=parent")
	cmd.Stdout = o
	p := StartTest(t, cmd)
	child, err := strconv.Atoi(strings.Fields(await(t, p, o, "<nil>"))[0])
	if err != nil {
		t.Fatal(err)
	}
	if found := WithVariable(func(v string) bool { return v == roleEnv+"=parent" }); !slices.Contains(found, p.Pid()) ||
		!slices.Contains(found, child) {
		t.Errorf("found %v by the environment, want %d and %d", found, p.Pid(), child)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "the child outlives its parent", func() bool { return Gone(child) })
	apart := exec.Command("sleep", "600")
	Detach(apart)
	if own(apart); apart.SysProcAttr.Setpgid || !apart.SysProcAttr.Setsid {
		t.Errorf("a detached command has %+v", apart.SysProcAttr)
	}
}

func TestOutput(t *testing.T) {
	var lines []string
	o := &Output{Keep: 8, Each: func(line string) { lines = append(lines, line) }}
	for _, part := range []string{"a", "b\r\ncd\n", "e", "f\n0123456789", "\nlast"} {
		if n, err := io.WriteString(o, part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if got := strings.Join(lines, " "); got != "ab cd ef 0123456789" || o.String() != "789\nlast" {
		t.Errorf("lines %q, kept %q", got, o)
	}
	if line, at, more := o.find(0, Contains("")); line != "789" || more != nil {
		t.Errorf("found %q", line)
	} else if _, _, more = o.find(at, Contains("")); more == nil {
		t.Error("an unfinished line was found")
	}
}
