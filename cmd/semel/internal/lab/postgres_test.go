package lab

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/report"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestFM03_DemoOnPostgres is the demo on the other database: its naive consumer breaks in the same way, the guard holds,
// and nothing is left behind.
func TestFM03_DemoOnPostgres(t *testing.T) {
	url := server.Database(t)
	o := DemoOptions{
		Orders: 40, Workers: 2, Kills: 2, Visibility: time.Second, Options: Options{Seed: 11, Where: place.Where{Store: url}},
	}
	v, err := demo(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Runs) != 2 || !v.OK() {
		t.Fatalf("verdict %+v", v)
	}
	off, on := v.Runs[0], v.Runs[1]
	t.Logf("off %+v", off)
	t.Logf("on  %+v", on)
	if off.Sent != 40 || off.Effects != 40+off.Duplicated || off.Duplicated == 0 || off.Lost != 0 {
		t.Errorf("guard off: %+v", off)
	}
	if on.Sent != 40 || on.Effects != 40 || on.Duplicated != 0 || on.Lost != 0 || on.Kills < 3 {
		t.Errorf("guard on: %+v", on)
	}
	if n := demoSchemas(t, url); n != 0 {
		t.Errorf("%d schemas are left behind", n)
	}
	if !strings.Contains(v.Timeline.Repeat, "--store 'postgres://") {
		t.Errorf("repeat: %s", v.Timeline.Repeat)
	}
}

// TestDemoKeepsSchemas: --keep leaves both schemas, and prints where they are.
func TestDemoKeepsSchemas(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	url := server.Database(t)
	v, err := demo(t, DemoOptions{
		Orders: 4, Workers: 1, Visibility: 10 * time.Second, Options: Options{Seed: 3, Keep: true, Where: place.Where{Store: url}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(v.KeptIn) != 4 || demoSchemas(t, url) != 2 {
		t.Fatalf("kept in %v, %d schemas", v.KeptIn, demoSchemas(t, url))
	}
	r, err := place.Open(t.Context(), place.URLs{Store: v.KeptIn[2], Queue: v.KeptIn[3]}, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	rows, err := r.Effects(t.Context())
	if err != nil || len(rows) != 4 {
		t.Errorf("%d rows in the kept ledger, %v", len(rows), err)
	}
	var b strings.Builder
	if err := report.WriteText(&b, v, false, 80); err != nil || !strings.Contains(b.String(), "semel records ls --store 'postgres://") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func demoSchemas(t *testing.T, url string) (n int) {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(ctx) }()
	if err := c.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'semel\\_lab\\_%'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
