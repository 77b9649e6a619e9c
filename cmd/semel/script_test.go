package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/adapters/sqlite"
	"github.com/semel-dev/semel/cmd/semel/internal/lab/sandbox"
)

// TestMain is semel where a test started it under that name, and where semel started itself: a hidden command (__guard) of a
// worker must not run the tests once more, which would start workers once more.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "__") {
		main()
		return
	}
	testscript.Main(m, map[string]func(){"semel": main})
}

// TestScripts runs testdata/script: every command, with its exit codes; with -short a third of the scripts, drawn at random.
// Beside testscript's own commands there are:
//
//	exits N PROG ARG…        runs a program that must exit N
//	eventually FILE REGEXP   waits until a file matches
//	trip DB KEY [stuck]      books a trip in three steps, the third of which fails (its compensations too)
//	sql DB STATEMENT         runs SQL on a database; a query's first column goes to stdout, a row a line
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		rand.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		files = files[:len(files)/3]
	}
	testscript.Run(t, testscript.Params{
		Files: files, Cmds: commands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Defer(func() { labsDown(e.WorkDir) })
			examples, err := filepath.Abs("../../examples")
			e.Setenv("EXAMPLES", examples)
			return err
		},
	})
}

// labsDown takes down what a script that failed left up.
func labsDown(dir string) {
	states, _ := filepath.Glob(dir + "/*/state.json")
	hidden, _ := filepath.Glob(dir + "/.*/state.json")
	for _, path := range append(states, hidden...) {
		_, _ = sandbox.Down(context.Background(), filepath.Dir(path), false)
	}
}

type command = func(ts *testscript.TestScript, neg bool, args []string)

func commands() map[string]command {
	return map[string]command{"exits": exits, "eventually": eventually, "sql": runSQL, "trip": bookTrip}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N PROG ARG…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		e := (*exec.ExitError)(nil)
		if !errors.As(err, &e) {
			ts.Fatalf("%v", err)
		}
		got = e.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: eventually FILE REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	path := ts.MkAbs(args[0])
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		b, err := os.ReadFile(path)
		if err == nil && re.Match(b) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s does not match %q: %v\n%s", args[0], args[1], err, b)
		}
	}
}

func runSQL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: sql DB STATEMENT")
	}
	ctx := context.Background()
	if strings.HasPrefix(args[0], "postgres://") {
		runPostgresSQL(ctx, ts, args[0], args[1])
		return
	}
	db, err := sqlite.Open(ctx, ts.MkAbs(args[0]), sqlite.Options{Create: true})
	ts.Check(err)
	defer func() { ts.Check(db.Close()) }()
	rows, err := db.SQL().QueryContext(ctx, args[1])
	ts.Check(err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var v any
		ts.Check(rows.Scan(&v))
		_, err := ts.Stdout().Write([]byte(text(v) + "\n"))
		ts.Check(err)
	}
	ts.Check(rows.Err())
}

// runPostgresSQL runs statements; the first column of every result goes to stdout.
func runPostgresSQL(ctx context.Context, ts *testscript.TestScript, address, statements string) {
	if name, ok := strings.CutPrefix(statements, "@"); ok {
		statements = ts.ReadFile(name)
	}
	c, err := pgx.Connect(ctx, address)
	ts.Check(err)
	defer func() { _ = c.Close(ctx) }()
	results, err := c.PgConn().Exec(ctx, statements).ReadAll()
	ts.Check(err)
	for _, r := range results {
		for _, row := range r.Rows {
			if len(row) == 0 {
				continue
			}
			_, err := ts.Stdout().Write(append(append([]byte{}, row[0]...), '\n'))
			ts.Check(err)
		}
	}
}

// withQuery makes sure that "&queue=…" can follow.
func withQuery(raw string) string {
	if strings.Contains(raw, "?") {
		return raw
	}
	return raw + "?application_name=semel-test"
}

func text(v any) string {
	switch x := v.(type) {
	case int64:
		return strconv.FormatInt(x, 10)
	case string:
		return x
	case []byte:
		return string(x)
	}
	return "?"
}

// TestScriptsAreRun keeps a misspelt folder from passing as no tests.
func TestScriptsAreRun(t *testing.T) {
	for dir, least := range map[string]int{"script": 20, "postgres": 8} {
		files, err := filepath.Glob("testdata/" + dir + "/*.txtar")
		if err != nil || len(files) < least {
			t.Errorf("found %d scripts in testdata/%s: %v", len(files), dir, err)
		}
	}
}
