package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest"
)

// The test binary runs itself again as a worker process: the mode and the file come by the environment.
const (
	envMode = "SEMEL_SQLITE_CHILD"
	envPath = "SEMEL_SQLITE_PATH"
)

func TestMain(m *testing.M) {
	mode, path := os.Getenv(envMode), os.Getenv(envPath)
	if mode == "" {
		os.Exit(m.Run())
	}
	if err := runChild(context.Background(), mode, path); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// child prepares a process of this binary.
func child(mode, path string) *exec.Cmd {
	return process.Self(envMode+"="+mode, envPath+"="+path)
}

func runChild(ctx context.Context, mode, path string) (err error) {
	if mode == "migrate" {
		_, to, err := Migrate(ctx, path)
		if err == nil && to != schemaVersion {
			err = fmt.Errorf("migrated to schema %d", to)
		}
		return err
	}
	db, err := Open(ctx, path, Options{Create: true, Visibility: 300 * time.Millisecond})
	if mode == "readonly" {
		if err == nil {
			err = db.Queue("q").Send(ctx, driver.Message{ID: "1"})
		}
		if err == nil {
			return errors.New("wrote to a read-only file")
		}
		fmt.Println(err)
		return nil
	}
	if err != nil {
		return err
	}
	switch mode {
	case "open":
	case "send":
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent closes it
		err = db.Queue("q").Send(ctx, driver.Message{ID: "x", Body: []byte("sent")})
	case "work", "tx":
		err = work(ctx, db, mode == "tx")
	case "relay", "relay-before", "relay-after":
		err = relayChild(ctx, db, strings.TrimPrefix(mode, "relay-"), path)
	case "poison":
		err = poisoned(ctx, db)
	case "hog":
		for i := 0; err == nil; i++ {
			_, err = db.Store().Claim(ctx, claim(fmt.Sprintf("hog-%d-%d", os.Getpid(), i)))
		}
	default:
		err = fmt.Errorf("mode %q is unknown", mode)
	}
	return errors.Join(err, db.Close())
}

// work is a small consumer: receive, claim, one guarded write. It runs until it is killed.
func work(ctx context.Context, db *DB, inTx bool) error {
	q, s := db.Queue("q"), db.Store()
	for {
		ds, err := q.Receive(ctx, 1+rand.IntN(20))
		if err != nil {
			return err
		}
		if inTx {
			err = workTx(ctx, q, s, ds)
		} else {
			err = workCommit(ctx, q, s, ds)
		}
		if err != nil {
			return err
		}
	}
}

func claimFor(d *driver.Delivery) driver.Claim {
	c := claim(d.ID)
	c.Lease, c.DeliveryID = 250*time.Millisecond, d.ID
	return c
}

func workCommit(ctx context.Context, q *Queue, s *Store, ds []driver.Delivery) error {
	var works []driver.Work
	var rest []driver.Settlement
	for i := range ds { // one by one: more places to be killed at, and duplicates in a batch need no care
		g, err := s.Claim(ctx, claimFor(&ds[i]))
		if err != nil {
			return err
		}
		if s, ok := settlement(&ds[i], &g[0]); ok {
			rest = append(rest, s)
			continue
		}
		st := &driver.Statements{}
		st.Exec("INSERT INTO ledger (id) VALUES ($1)", ds[i].ID)
		works = append(works, driver.Work{
			Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour}, Effects: st,
			Ack:  &driver.Settlement{Receipt: ds[i].Receipt},
			Emit: []driver.Message{{Queue: "out", ID: "out-" + ds[i].ID}},
		})
	}
	if _, err := s.Commit(ctx, works...); err != nil {
		return err
	}
	_, err := q.Settle(ctx, rest...)
	return err
}

func workTx(ctx context.Context, q *Queue, s *Store, ds []driver.Delivery) error {
	for i := range ds {
		x, g, err := s.Begin(ctx, claimFor(&ds[i]))
		if err != nil {
			return err
		}
		if st, ok := settlement(&ds[i], &g[0]); ok {
			if _, err := q.Settle(ctx, st); err != nil {
				return err
			}
			continue
		}
		if err := addTx(ctx, x, ds[i].ID); err != nil {
			return err
		}
		err = x.Commit(ctx, driver.Work{
			Finish: driver.Finish{Hold: g[0].Hold, Final: driver.Complete, Keep: time.Hour},
			Ack:    &driver.Settlement{Receipt: ds[i].Receipt},
			Emit:   []driver.Message{{Queue: "out", ID: "out-" + ds[i].ID}},
		})
		if err != nil && !errors.Is(err, driver.ErrNotCommitted) {
			return err
		}
	}
	return nil
}

// settlement says what becomes of a delivery that is not to be run.
func settlement(d *driver.Delivery, g *driver.Grant) (driver.Settlement, bool) {
	switch g.Verdict {
	case driver.Acquired:
		return driver.Settlement{}, false
	case driver.Busy:
		return driver.Settlement{Receipt: d.Receipt, Action: driver.Defer, After: g.Wait}, true
	default:
		return driver.Settlement{Receipt: d.Receipt, Action: driver.Ack}, true
	}
}

// TestFM1_FM4_FM5_KilledWorkers kills worker processes with SIGKILL at random moments, in claims, in commits and in
// synchronous transactions, and stops others for longer than their lease: zombies that go on. The ledger is the judge: every effect once, every emitted message once, nothing left.
func TestFM1_FM4_FM5_KilledWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are killed")
	}
	part := semeltest.Sampled(2)
	messages, kills := 3000/part, 40/part
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{})
	ctx := t.Context()
	exec_(t, db, "CREATE TABLE ledger (id TEXT)")
	q := db.Queue("q")
	rnd := rand.New(rand.NewPCG(7, 7))
	var list []driver.Message
	for i := range messages {
		list = append(list, driver.Message{ID: fmt.Sprintf("m%05d", i)})
		if rnd.IntN(5) == 0 {
			list = append(list, driver.Message{ID: fmt.Sprintf("m%05d", rnd.IntN(i+1))})
		}
	}
	modes := []string{"work", "work", "tx"}
	workers := make([]*process.Process, len(modes))
	start := func(i int) {
		t.Helper()
		cmd := child(modes[i], path)
		cmd.Stderr = os.Stderr
		workers[i] = process.StartTest(t, cmd)
	}
	for i := range workers {
		start(i)
	}
	for k := range kills { // messages come while workers die
		if err := q.Send(ctx, list[k*len(list)/kills:(k+1)*len(list)/kills]...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(20+rnd.IntN(60)) * time.Millisecond) // deaths come at any moment
		i := rnd.IntN(len(workers))
		if k%4 == 3 && process.HasSignals {
			if err := workers[i].Freeze(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(400 * time.Millisecond) // the lease and the visibility have expired
			if err := workers[i].Thaw(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		workers[i].Kill()
		start(i)
	}
	waitFor(t, func() bool { return must(q.Stats(ctx))(t).Empty() })
	if n := count(t, db, "SELECT count(*) FROM ledger"); n != messages {
		t.Errorf("%d effects for %d messages", n, messages)
	}
	if n := count(t, db, "SELECT count(DISTINCT id) FROM ledger"); n != messages {
		t.Errorf("%d distinct effects for %d messages", n, messages)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_record WHERE state = 3"); n != messages {
		t.Errorf("%d completed records for %d messages", n, messages)
	}
	if n := must(db.Queue("out").Stats(ctx))(t).Visible; n != int64(messages) {
		t.Errorf("%d emitted messages for %d messages", n, messages)
	}
	if n := count(t, db, "SELECT count(*) FROM semel_flight") + count(t, db, "SELECT count(*) FROM semel_timed"); n != 0 {
		t.Errorf("%d rows are left of the queue", n)
	}
	var verdict string
	if err := db.SQL().QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&verdict); err != nil || verdict != "ok" {
		t.Errorf("integrity: %s, %v", verdict, err)
	}
}

// waitFor waits for a condition. The limit is for one that never holds; a machine may be slow.
func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	const limit = 2 * time.Minute
	for end := time.Now().Add(limit); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("condition does not hold after %v", limit)
		}
		time.Sleep(5 * time.Millisecond) // the pause between two looks
	}
}

// TestWakeAcrossProcesses: a message that another process sends wakes a blocked Receive, which looks every PollInterval:
// far more often than every 100 ms.
func TestWakeAcrossProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{})
	sender := child("send", path)
	stdin := must(sender.StdinPipe())(t)
	if err := sender.Start(); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		ds, err := db.Queue("q").Receive(t.Context(), 1)
		if err != nil || len(ds) != 1 {
			got <- fmt.Sprintf("received %v, %v", ds, err)
			return
		}
		got <- string(ds[0].Body)
	}()
	waitFor(t, func() bool { return db.watch.waiters.Queues() != nil }) // it has found nothing, and waits
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sender.Wait(); err != nil {
		t.Fatal(err)
	}
	select {
	case body := <-got:
		if body != "sent" {
			t.Error(body)
		}
	case <-time.After(time.Minute):
		t.Error("Receive still waits")
	}
	if db.o.PollInterval > 10*time.Millisecond {
		t.Errorf("a blocked Receive looks every %v", db.o.PollInterval)
	}
}

// TestFM68_BusyNeighbour: a process that writes all the time does not keep another one's heartbeats out.
func TestFM68_BusyNeighbour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "semel.db")
	db := openAt(t, path, Options{BusyTimeout: time.Minute})
	ctx := t.Context()
	g := must(db.Store().Claim(ctx, claim("k")))(t)
	process.StartTest(t, child("hog", path))
	waitFor(t, func() bool { return count(t, db, "SELECT count(*) FROM semel_record") > 50 })
	took := make([]time.Duration, 200)
	for i := range took {
		begin := time.Now()
		if out := must(db.Store().Extend(ctx, time.Minute, g[0].Hold))(t); out[0] != driver.Applied {
			t.Fatal(out)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	half, worst := took[len(took)/2], took[len(took)-1]
	t.Logf("200 heartbeats beside it: half within %v, the slowest %v", half, worst)
	// Each was there within BusyTimeout, or it would have failed. Half of them are there soon, on a slow disk too.
	if half > db.o.BusyTimeout/10 {
		t.Errorf("half of the heartbeats took %v, the slowest %v", half, worst)
	}
}
