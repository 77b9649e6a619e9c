package sqs

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
)

// TestSemelWorkWithFaults is semel's own worker on a queue that does all that SQS may do wrong: every effect once.
func TestSemelWorkWithFaults(t *testing.T) {
	e := start(t, "--create", "orders,dlq=dead:1000,visibility=2s")
	dir := t.TempDir()
	const messages = 100
	queue := "sqs://orders"
	var sent strings.Builder
	for i := range messages {
		_, _ = fmt.Fprintf(&sent, "{\"order\":%d}\n", i)
	}
	file := filepath.Join(dir, "orders.jsonl")
	if err := os.WriteFile(file, []byte(sent.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	e.client(dir, semel, "send", "--queue", queue, file)
	// A worker that cannot reach its queue at the start ends with an error, so the faults begin while it works.
	const working = "@ReceiveMessage+DeleteMessageBatch+ChangeMessageVisibilityBatch"
	e.client(dir, semel, "sqs", "fault", "--seed", "5", "duplicate=0.2", "disorder=0.3", "dropped-delete=0.2", "stale-handle=0.1",
		"early-visible=0.1", "late-visible=0.05,by=2s", "lost-response"+working+"=0.05", "torn"+working+"=0.03",
		"throttle"+working+"=0.03", "internal"+working+"=0.03", "partial=0.1")
	e.client(dir, semel, "work", "--queue", queue, "--store", "sqlite:records.db", "--key", "json:/order", "--until-empty",
		"--visibility", "2s", "--exec", `order=$(cat); echo "$order" >> effects`)
	b, err := os.ReadFile(filepath.Join(dir, "effects"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(b))
	slices.Sort(lines)
	if once := slices.Compact(slices.Clone(lines)); len(once) != messages || len(lines) != messages {
		t.Errorf("%d effects of %d messages, want %d of each", len(lines), len(once), messages)
	}
	var state struct {
		Counts map[string]struct{ Hits int }
	}
	if err := json.Unmarshal(e.client(dir, semel, "sqs", "fault", "-o", "json"), &state); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"duplicate", "dropped-delete", "disorder", "early-visible", "lost-response"} {
		if state.Counts[name].Hits == 0 {
			t.Errorf("%s never hit: %v", name, state.Counts)
		}
	}
}

// bodies are the messages of a queue, received to its end.
func (e *endpoint) bodies(queue string) []string {
	e.Helper()
	var all []string
	for {
		status, text := e.call("ReceiveMessage", map[string]any{
			"QueueUrl": e.queue(queue), "MaxNumberOfMessages": 10, "VisibilityTimeout": 600,
		})
		var out struct{ Messages []struct{ Body string } }
		if err := json.Unmarshal([]byte(text), &out); err != nil || status != http.StatusOK {
			e.Fatalf("receive: %d %s", status, text)
		}
		if len(out.Messages) == 0 {
			return all
		}
		for _, m := range out.Messages {
			all = append(all, m.Body)
		}
	}
}

// TestNothingConfirmedIsLostByAKill sends from several clients, kills the server, and starts it again on its file.
func TestNothingConfirmedIsLostByAKill(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "q.db")
	e := start(t, "--queue", file, "--create", "jobs,visibility=1h")
	var mu sync.Mutex
	confirmed := map[string]bool{}
	var all sync.WaitGroup
	reached := make(chan struct{})
	for side := range 4 {
		all.Go(func() {
			for i := 0; ; i++ {
				body := fmt.Sprintf("%d-%d", side, i)
				status, _ := e.call("SendMessage", map[string]any{"QueueUrl": e.queue("jobs"), "MessageBody": body})
				if status != http.StatusOK {
					return
				}
				mu.Lock()
				if confirmed[body] = true; len(confirmed) == 100 {
					close(reached)
				}
				mu.Unlock()
			}
		})
	}
	<-reached
	_ = e.end(syscall.SIGKILL)
	all.Wait()
	again := start(t, "--queue", file)
	there := map[string]bool{}
	for _, b := range again.bodies("jobs") {
		if there[b] {
			t.Errorf("%s is there twice", b)
		}
		there[b] = true
	}
	for b := range confirmed {
		if !there[b] {
			t.Errorf("%s was confirmed and is lost", b)
		}
	}
	if extra := len(there) - len(confirmed); extra > 4 {
		t.Errorf("%d more than were confirmed, want what was under way: 4 at most", extra)
	}
	// What was received is held, with its timeout, by the next server too.
	_ = again.end(syscall.SIGKILL)
	if third := start(t, "--queue", file).bodies("jobs"); len(third) != 0 {
		t.Errorf("%d messages are handed out again before the end of their visibility timeout", len(third))
	}
}

// TestFM50_FullDisk fills the disk of the file: what cannot be kept is refused, and what was confirmed is there afterwards.
func TestFM50_FullDisk(t *testing.T) {
	server.Need(t, "tmpfs")
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", dir).CombinedOutput(); err != nil {
		server.LeaveOut(t, "tmpfs", fmt.Sprintf("none can be mounted: %v: %s", err, out))
	}
	t.Cleanup(func() { _ = exec.Command("umount", dir).Run() })
	file := "sqlite:" + filepath.Join(dir, "q.db")
	e := start(t, "--queue", file, "--create", "jobs")
	// Room for afterwards: what is left of the disk is filled by messages.
	ballast := []string{filepath.Join(dir, "ballast0"), filepath.Join(dir, "ballast1")}
	for _, b := range ballast {
		if err := os.WriteFile(b, make([]byte, 6<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	send := func(i int) (int, string) {
		return e.call("SendMessage", map[string]any{
			"QueueUrl": e.queue("jobs"), "MessageBody": fmt.Sprintf("%04d%s", i, strings.Repeat("x", 50_000)),
		})
	}
	var confirmed []string
	refused := 0
	for i := 0; i < 200 && refused < 3; i++ {
		status, text := send(i)
		switch status {
		case http.StatusOK:
			confirmed = append(confirmed, fmt.Sprintf("%04d", i))
		case http.StatusServiceUnavailable:
			refused++
			contains(t, text, "full")
		default:
			t.Fatalf("%d %s", status, text)
		}
	}
	if refused != 3 || len(confirmed) == 0 {
		t.Fatalf("%d confirmed, %d refused: the disk was not filled", len(confirmed), refused)
	}
	if err := os.Remove(ballast[0]); err != nil {
		t.Fatal(err)
	}
	if status, text := send(999); status != http.StatusOK {
		t.Fatalf("with room again: %d %s", status, text)
	}
	confirmed = append(confirmed, "0999")
	if err := errors.Join(e.end(syscall.SIGTERM), os.Remove(ballast[1])); err != nil {
		t.Errorf("SIGTERM: %v\n%s", err, &e.errs)
	}
	var there []string
	for _, b := range start(t, "--queue", file).bodies("jobs") {
		there = append(there, b[:4])
	}
	for _, b := range confirmed {
		if !slices.Contains(there, b) {
			t.Errorf("%s was confirmed and is lost; there are %v", b, there)
		}
	}
	// The first refusal may have been carried out, the later ones were not.
	if extra := len(there) - len(confirmed); extra > 1 {
		t.Errorf("%d that were refused are there", extra)
	}
}

// TestLongPollsEndWithTheServer stops a server while a consumer waits in a long poll.
func TestLongPollsEndWithTheServer(t *testing.T) {
	for _, queue := range []string{"memory", "sqlite:" + filepath.Join(t.TempDir(), "q.db")} {
		e := start(t, "--queue", queue, "--create", "jobs", "--fault", "disorder=1e-300")
		response := make(chan string, 1)
		begin := time.Now()
		go func() {
			status, text := e.call("ReceiveMessage", map[string]any{"QueueUrl": e.queue("jobs"), "WaitTimeSeconds": 20})
			response <- fmt.Sprint(status, text)
		}()
		for !e.asked() {
			time.Sleep(5 * time.Millisecond) // the pause between two looks
		}
		if err := e.end(syscall.SIGTERM); err != nil {
			t.Errorf("%s: SIGTERM: %v\n%s", queue, err, &e.errs)
		}
		if got := <-response; got != "200{}" || time.Since(begin) > 15*time.Second {
			t.Errorf("%s: the long poll got %s after %v", queue, got, time.Since(begin))
		}
	}
}

// asked reports that a receive has come: a fault that hits none counts its chances.
func (e *endpoint) asked() bool {
	e.Helper()
	r, err := http.Get(e.url + "/_semel/faults")
	if err != nil {
		e.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	var state struct {
		Counts map[string]struct{ Chances int }
	}
	if err := json.NewDecoder(r.Body).Decode(&state); err != nil {
		e.Fatal(err)
	}
	return state.Counts["disorder"].Chances > 0
}

// TestASecondServerTakesTheFile starts two on one file: the first one ends, and nothing is torn between them.
func TestASecondServerTakesTheFile(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "q.db")
	first := start(t, "--queue", file, "--create", "jobs")
	second := start(t, "--queue", file)
	message := func(e *endpoint) any { return map[string]any{"QueueUrl": e.queue("jobs"), "MessageBody": "a"} }
	if status, text := first.call("SendMessage", message(first)); status != http.StatusServiceUnavailable {
		t.Errorf("the first server responds with %d %s", status, text)
	}
	select {
	case <-first.Done():
		if first.State().ExitCode() != 1 {
			t.Errorf("it ends with %v, want exit status 1", first.State())
		}
		contains(t, first.errs.String(), "another semel sqs was started on this file")
	case <-time.After(5 * time.Minute):
		t.Fatal("the first server goes on")
	}
	if status, text := second.call("SendMessage", message(second)); status != http.StatusOK {
		t.Errorf("the second server responds with %d %s", status, text)
	}
	if got := second.bodies("jobs"); len(got) != 1 {
		t.Errorf("%v, want one message", got)
	}
}

// TestARefusedServerTakesNoFile: a server that does not start, here for an attribute that the queue has not, leaves the file to
// the one that runs.
func TestARefusedServerTakesNoFile(t *testing.T) {
	file := "sqlite:" + filepath.Join(t.TempDir(), "q.db")
	e := start(t, "--queue", file, "--create", "a")
	out, err := exec.CommandContext(t.Context(), semel, "sqs", "--listen", "127.0.0.1:0", "--queue", file, "--create", "a,visibility=9s").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "VisibilityTimeout") {
		t.Fatalf("the second server: %v\n%s", err, out)
	}
	if status, body := e.call("SendMessage", map[string]any{"QueueUrl": e.queue("a"), "MessageBody": "x"}); status != http.StatusOK {
		t.Errorf("the first server responds with %d %s", status, body)
	}
}
