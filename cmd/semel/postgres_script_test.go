//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestScriptsPostgres runs testdata/postgres. In each script PG is the URL of an empty database of its own, with a query,
// so that "$PG&queue=orders" is a queue. Besides the commands of TestScripts there are:
//
//	server start [NAME=VALUE…]   starts a throw-away server with these settings; its URL is OWN, its address OWNADDR
//	server stop | kill | again   stops it, kills it, starts it again
//	pooler start                 starts pgbouncer in transaction mode in front of OWN; its URL is POOL
//	hold URL | release           opens connections until the server refuses, closes them
//	document FILE SECTION        writes the SQL blocks of a section of a page in docs/ to stdout
//
// Where no server can be had the test is left out.
func TestScriptsPostgres(t *testing.T) {
	shared := server.Shared(t, "postgres")
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		server.RecordLeftOut("testdata/postgres/pg_pooler.txtar", "pgbouncer", "it is not installed")
	}
	cmds := commands()
	cmds["server"], cmds["pooler"], cmds["document"] = runServer, runPooler, document
	cmds["hold"], cmds["release"] = hold, release
	testscript.Run(t, testscript.Params{
		Dir: "testdata/postgres", Cmds: cmds, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			created, drop, err := server.CreateDatabase(context.Background(), shared)
			if err != nil {
				return err
			}
			e.Defer(func() {
				if err := drop(context.Background()); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			})
			e.Setenv("PG", withQuery(created))
			e.Setenv("PGDATABASENAME", strings.Trim(mustParse(created).Path, "/"))
			e.Values[ownServer{}] = &own{}
			e.Defer(func() { e.Values[ownServer{}].(*own).close() })
			return nil
		},
	})
}

func mustParse(raw string) *url.URL {
	u, err := url.Parse(raw)
	if err != nil {
		panic(err)
	}
	return u
}

type ownServer struct{}

// own is what a script started.
type own struct {
	server *server.Server
	pooler *process.Process
	held   []*pgx.Conn
}

func (o *own) close() {
	o.release()
	if o.pooler != nil {
		o.pooler.Kill()
	}
	if o.server != nil {
		_ = o.server.Close()
	}
}

func runServer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: server start [NAME=VALUE…] | stop | kill | again")
	}
	o, _ := ts.Value(ownServer{}).(*own)
	ctx := context.Background()
	switch args[0] {
	case "start":
		settings := map[string]string{}
		for _, a := range args[1:] {
			name, value, _ := strings.Cut(a, "=")
			settings[name] = value
		}
		s, err := server.PostgreSQL(ctx, server.Options{Settings: settings})
		ts.Check(err)
		o.server = s
		ts.Setenv("OWN", withQuery(s.URL()))
		ts.Setenv("OWNADDR", s.Addr())
		ts.Setenv("OWNDIR", s.Dir())
	case "stop":
		ts.Check(o.server.Stop(server.Fast))
	case "kill":
		ts.Check(o.server.Kill())
	case "again":
		ts.Check(o.server.Start(ctx))
	default:
		ts.Fatalf("unknown: server %s", args[0])
	}
}

func (o *own) release() {
	for _, c := range o.held {
		_ = c.Close(context.Background())
	}
	o.held = nil
}

func hold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: hold URL")
	}
	o, _ := ts.Value(ownServer{}).(*own)
	for range 1000 {
		c, err := pgx.Connect(context.Background(), args[0])
		if err != nil {
			ts.Logf("holding %d: %v", len(o.held), err)
			return
		}
		o.held = append(o.held, c)
	}
	ts.Fatalf("the server refuses nothing")
}

func release(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: release")
	}
	o, _ := ts.Value(ownServer{}).(*own)
	o.release()
}

// runPooler starts a pgbouncer, which refuses to run as root.
func runPooler(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || args[0] != "start" {
		ts.Fatalf("usage: pooler start")
	}
	o, _ := ts.Value(ownServer{}).(*own)
	host, port, _ := net.SplitHostPort(o.server.Addr())
	dir := ts.MkAbs("pooler")
	ts.Check(os.MkdirAll(dir, 0o755))
	free, err := server.FreePort()
	ts.Check(err)
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(free))
	conf := fmt.Sprintf("[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\n"+
		"unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 8\nmax_client_conn = 100\n",
		host, port, free)
	file := filepath.Join(dir, "pgbouncer.ini")
	ts.Check(os.WriteFile(file, []byte(conf), 0o644))
	cmd := exec.Command("pgbouncer", file)
	logFile, err := os.Create(filepath.Join(dir, "log"))
	ts.Check(err)
	defer func() { _ = logFile.Close() }()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	if os.Geteuid() == 0 {
		const nobody = 65534
		process.As(cmd, nobody, nobody)
		// The configuration is read by that user: it must be able to pass the way to it.
		public, err := os.CreateTemp("", "semel-pgbouncer-*.ini")
		ts.Check(err)
		_, err = public.WriteString(conf)
		ts.Check(err)
		ts.Check(public.Chmod(0o644))
		ts.Check(public.Close())
		ts.Defer(func() { _ = os.Remove(public.Name()) })
		cmd.Args[1] = public.Name()
		cmd.Dir = os.TempDir()
	}
	o.pooler, err = process.Start(cmd)
	ts.Check(err)
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", at)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(logFile.Name())
			ts.Fatalf("pgbouncer does not listen: %v\n%s", err, b)
		}
	}
	ts.Setenv("POOL", fmt.Sprintf("postgres://postgres@%s/postgres?sslmode=disable", at))
}

// document prints the SQL of a page, so that what the docs say is what is tested.
func document(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: document FILE SECTION")
	}
	b, err := os.ReadFile(filepath.Join(docsDir, args[0]))
	ts.Check(err)
	_, section, ok := strings.Cut(string(b), "# "+args[1]+"\n")
	if !ok {
		ts.Fatalf("docs/%s has no section %q", args[0], args[1])
	}
	section, _, _ = strings.Cut(section, "\n#")
	found := 0
	for {
		_, after, ok := strings.Cut(section, "```sql\n")
		if !ok {
			break
		}
		sql, rest, _ := strings.Cut(after, "```")
		_, err := ts.Stdout().Write([]byte(sql))
		ts.Check(err)
		section = rest
		found++
	}
	if found == 0 {
		ts.Fatalf("section %q of docs/%s has no SQL", args[1], args[0])
	}
}

// docsDir is the folder of the documentation. Scripts run elsewhere.
var docsDir = func() string {
	dir, err := filepath.Abs("../../docs")
	if err != nil {
		panic(err)
	}
	return dir
}()
