package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/internal/process"
)

// The test binary runs itself again as a process that replays and is killed: its file, its table, and the run at which
// it kills itself come by the environment.
const (
	envPath  = "REBUILD_PATH"
	envTable = "REBUILD_TABLE"
	envKill  = "REBUILD_KILL"
)

func TestMain(m *testing.M) {
	if os.Getenv(envPath) == "" {
		os.Exit(m.Run())
	}
	if err := replayAndDie(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// replayAndDie replays until a number of runs have begun, and kills itself.
func replayAndDie(ctx context.Context) error {
	db, err := sqlite.Open(ctx, os.Getenv(envPath), sqlite.Options{Create: true})
	if err != nil {
		return err
	}
	p, err := openProjection(ctx, db, os.Getenv(envTable))
	if err != nil {
		return err
	}
	last, err := strconv.ParseInt(os.Getenv(envKill), 10, 64)
	if err != nil {
		return err
	}
	var runs atomic.Int64
	_, err = p.replay(ctx, func(ctx context.Context, _ *semel.Attempt, next func(context.Context) error) error {
		if runs.Add(1) == last {
			process.KillSelf()
		}
		return next(ctx)
	})
	return fmt.Errorf("%d runs, none of them deadly: %w", runs.Load(), err)
}

// bank is a file with a stream.
type bank struct {
	path   string
	db     *sqlite.DB
	events []Event
}

func newBank(t *testing.T, n int) *bank {
	t.Helper()
	b := &bank{path: filepath.Join(t.TempDir(), "bank.db"), events: makeEvents(n, 45)}
	db, err := sqlite.Open(t.Context(), b.path, sqlite.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	b.db = db
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := appendEvents(t.Context(), db.SQL(), b.events); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bank) replay(t *testing.T, table string) semel.Summary {
	t.Helper()
	p, err := openProjection(t.Context(), b.db, table)
	if err != nil {
		t.Fatal(err)
	}
	sum, err := p.replay(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

func (b *bank) state(t *testing.T, table string) string {
	t.Helper()
	text, err := state(t.Context(), b.db, table)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// applied counts the events that a table has.
func (b *bank) applied(t *testing.T, table string) (n int) {
	t.Helper()
	if err := b.db.SQL().QueryRowContext(t.Context(), "SELECT coalesce(sum(events), 0) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// fold is what the stream comes to, without a database: the measure of all tables.
func fold(events []Event) string {
	type account struct {
		owner                          string
		balance, refused, events, last int64
	}
	all := map[string]*account{}
	for _, e := range events {
		a := all[e.Account]
		if a == nil {
			a = new(account)
			all[e.Account] = a
		}
		a.events, a.last = a.events+1, e.Seq
		switch {
		case e.Kind == opened || e.Kind == renamed:
			a.owner = e.Text
		case e.Kind == deposited:
			a.balance += e.Amount
		case a.balance < e.Amount:
			a.refused++
		default:
			a.balance -= e.Amount
		}
	}
	var lines []string
	for name, a := range all {
		lines = append(lines, fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\n", name, a.owner, a.balance, a.refused, a.events, a.last))
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// reversed turns events round but for the first two, which open accounts.
func reversed(events []Event) []Event {
	slices.Reverse(events[2:])
	return events
}

// TestReplayingTwiceIsReplayingOnce: the same consumer gets the whole stream again, and nothing runs.
func TestReplayingTwiceIsReplayingOnce(t *testing.T) {
	const n = 400
	b := newBank(t, n)
	if sum := b.replay(t, "accounts_v1"); sum.Effects != n {
		t.Fatalf("the first replay applied %d of %d events", sum.Effects, n)
	}
	once := b.state(t, "accounts_v1")
	if want := fold(b.events); once != want {
		t.Fatalf("the table holds\n%swant\n%s", once, want)
	}
	if early := slices.Clone(b.events); fold(reversed(early)) == once {
		t.Fatal("the order of the events would not show")
	}
	if sum := b.replay(t, "accounts_v1"); sum.Effects != 0 || sum.Replayed != n {
		t.Errorf("the second replay applied %d events and found %d, want 0 and %d", sum.Effects, sum.Replayed, n)
	}
	if again := b.state(t, "accounts_v1"); again != once {
		t.Errorf("the table holds\n%safter the second replay, before it\n%s", again, once)
	}
}

// TestRebuildAmongKills: another consumer builds another table from zero, is killed three times in the middle of it, each
// time with work in flight, and sends everything anew each time. The table comes out the same, byte by byte, and then the
// readers are switched to it.
func TestRebuildAmongKills(t *testing.T) {
	const n = 1200
	b := newBank(t, n)
	b.replay(t, "accounts_v1")
	if err := switchTo(t.Context(), b.db, "accounts_v1"); err != nil {
		t.Fatal(err)
	}
	before := 0
	for life := range 3 {
		var out process.Output
		cmd := process.Self(envPath+"="+b.path, envTable+"=accounts_v2", envKill+"=250")
		cmd.Stdout, cmd.Stderr = &out, &out
		if p := process.StartTest(t, cmd); !p.Killed() {
			t.Fatalf("life %d was not killed: %v\n%s", life, p.State(), &out)
		}
		now := b.applied(t, "accounts_v2")
		if now <= before || now >= n {
			t.Fatalf("life %d took the table from %d to %d of %d events: not in the middle", life, before, now, n)
		}
		before = now
		if err := switchTo(t.Context(), b.db, "accounts_v2"); !errors.Is(err, errBehind) {
			t.Fatalf("switch to a table with %d of %d events: %v", now, n, err)
		}
	}
	sum := b.replay(t, "accounts_v2")
	if sum.Effects == 0 || sum.Replayed < int64(before) {
		t.Errorf("the last life applied %d events and met %d copies, want all %d applied ones among these", sum.Effects, sum.Replayed, before)
	}
	want := fold(b.events)
	for _, table := range []string{"accounts_v1", "accounts_v2"} {
		if got := b.state(t, table); got != want {
			t.Errorf("%s holds\n%swant\n%s", table, got, want)
		}
	}
	if err := switchTo(t.Context(), b.db, "accounts_v2"); err != nil {
		t.Fatal(err)
	}
	if got := b.state(t, "accounts"); got != want {
		t.Errorf("readers see\n%swant\n%s", got, want)
	}
}

// TestSwitchIsRefusedBehind: what was appended since the rebuild is missing; a further replay applies that alone.
func TestSwitchIsRefusedBehind(t *testing.T) {
	b := newBank(t, 100)
	b.replay(t, "accounts_v2")
	late := Event{Seq: 101, Account: b.events[0].Account, Kind: deposited, Amount: 5}
	if err := appendEvents(t.Context(), b.db.SQL(), []Event{late}); err != nil {
		t.Fatal(err)
	}
	if err := switchTo(t.Context(), b.db, "accounts_v2"); !errors.Is(err, errBehind) {
		t.Fatalf("switch without the last event: %v", err)
	}
	if sum := b.replay(t, "accounts_v2"); sum.Effects != 1 {
		t.Fatalf("catching up applied %d events, want 1", sum.Effects)
	}
	if err := switchTo(t.Context(), b.db, "accounts_v2"); err != nil {
		t.Fatal(err)
	}
	if got, want := b.state(t, "accounts"), fold(append(b.events, late)); got != want {
		t.Errorf("readers see\n%swant\n%s", got, want)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"seed"}, {"-db", "x.db", "seed", "none"}, {"-db", "x.db", "fly", "accounts"}} {
		t.Chdir(t.TempDir())
		if err := run(t.Context(), args, t.Output()); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"-db", filepath.Join(t.TempDir(), "x.db"), "replay", "a;b"}, t.Output()); !errors.Is(err, errName) {
		t.Errorf("a table with a bad name: %v", err)
	}
}
