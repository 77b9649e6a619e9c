package languages

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/semel-dev/semel/bench/internal/harness"
	"github.com/semel-dev/semel/bench/internal/load"
	"github.com/semel-dev/semel/semeltest/server"
)

// The versions of npm's packages. They go to the user's cache, once.
const (
	bullVersion = "5.79.2"
	pgVersion   = "8.16.3"
)

//go:embed handler.py handler.mjs bullmq.mjs tasks.py
var files embed.FS

// language is one that has a package for handlers in sdk.
type language struct{ name, title, program, file, sdk string }

var (
	python = language{name: "python", title: "Python", program: "python3", file: "handler.py", sdk: "python"}
	node   = language{name: "node", title: "Node.js", program: "node", file: "handler.mjs", sdk: "node/index.js"}
)

// command is the handler's command line. Its program and folder are in the environment.
func (l language) command(mode string) string {
	return `exec "$PROGRAM" "$HANDLERS/` + l.file + `" ` + mode
}

// settings are arguments as the report shows them.
func settings(args []string) string {
	var list []string
	for _, a := range args {
		if !strings.Contains(a, "$") {
			list = append(list, a)
		}
	}
	return strings.Join(list, " ")
}

// work has `semel work` call the handler until the queue is empty.
func (l language) work(http bool, args []string) func(context.Context, *harness.Env, *harness.Database, load.Work) error {
	return func(ctx context.Context, e *harness.Env, d *harness.Database, w load.Work) (err error) {
		semel, err := binary()
		if err != nil {
			return err
		}
		env, err := l.environment(e.Dir)
		if err != nil {
			return err
		}
		db, err := queued(ctx, d, w)
		if err != nil {
			return err
		}
		if err := db.Close(); err != nil {
			return err
		}
		args := args
		if http {
			url, stop, err := l.serve(ctx, env)
			if err != nil {
				return err
			}
			defer stop()
			args = append(slices.Clone(args), "--http", url)
		}
		cmd := exec.CommandContext(ctx, semel, append([]string{
			"work", "--queue", d.URL + "&queue=" + queue, "--key", "json:/id", "--effects", "sql", "--until-empty", "--batch", strconv.Itoa(batch),
			"--committers", "2", "--log-level", "warn",
		}, args...)...)
		cmd.Env = env
		return run(cmd)
	}
}

// serve starts the handler's HTTP server, and waits until it listens.
func (l language) serve(ctx context.Context, env []string) (url string, stop func(), err error) {
	port, err := server.FreePort()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", l.command("http "+strconv.Itoa(port)))
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	err = harness.Until(ctx, func(context.Context) (bool, error) {
		c, _ := net.Dial("tcp", addr)
		if c == nil {
			return false, nil // it does not listen yet
		}
		return true, c.Close()
	})
	return "http://" + addr + "/", func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }, err
}

// environment names the program itself, which version managers hide behind scripts, the handlers and the package.
func (l language) environment(dir string) ([]string, error) {
	path, err := exec.LookPath(l.program)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", harness.ErrLeftOut, err)
	}
	if l == python {
		out, err := exec.Command(path, "-c", "import sys; print(sys.executable)").Output()
		if err != nil {
			return nil, fmt.Errorf("find python3: %w", err)
		}
		path = strings.TrimSpace(string(out))
	}
	if err := os.CopyFS(dir, files); err != nil {
		return nil, err
	}
	sdk, err := filepath.Abs(filepath.Join("..", "sdk", l.sdk))
	return append(os.Environ(), "PROGRAM="+path, "HANDLERS="+dir, "SDK="+sdk), err
}

// binary builds semel, once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := cache("bin")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "semel")
	cmd := exec.Command("go", "build", "-tags", "grpcnotrace", "-o", path, ".")
	cmd.Dir, cmd.Env = filepath.Join("..", "cmd", "semel"), append(os.Environ(), "GOWORK=")
	return path, run(cmd)
})

// cache makes a folder for what is fetched or built.
func cache(name string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(dir, "semel", "bench", name)
	return dir, os.MkdirAll(dir, 0o755)
}

// run runs a command; an error has what it printed.
func run(cmd *exec.Cmd) error {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, bytes.TrimSpace(out.Bytes()[max(0, out.Len()-2000):]))
	}
	return nil
}

// bullMQ sends the deliveries as jobs, and works until they are done.
func bullMQ(ctx context.Context, e *harness.Env, d *harness.Database, w load.Work) error {
	dir, err := cache("bullmq-" + bullVersion)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "pg")); err != nil {
		npm := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "bullmq@"+bullVersion, "pg@"+pgVersion)
		if err := run(npm); err != nil {
			return fmt.Errorf("%w: %w", harness.ErrLeftOut, err)
		}
	}
	script, err := files.ReadFile("bullmq.mjs")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bullmq.mjs"), script, 0o644); err != nil { // beside its packages
		return err
	}
	cmd := exec.CommandContext(ctx, "node", "bullmq.mjs")
	cmd.Dir = dir
	if cmd.Env, err = peer(e, d, w, load.GuardedEffect); err != nil {
		return err
	}
	return run(cmd)
}

// celery sends the deliveries as tasks, and has a worker run until the last one is done. It is Debian's Celery.
func celery(ctx context.Context, e *harness.Env, d *harness.Database, w load.Work) (err error) {
	const python = "/usr/bin/python3"
	if err := run(exec.CommandContext(ctx, python, "-c", "import celery, psycopg2, redis")); err != nil {
		return fmt.Errorf("%w: install python3-celery, python3-psycopg2 and python3-redis: %w", harness.ErrLeftOut, err)
	}
	if err := os.CopyFS(e.Dir, files); err != nil {
		return err
	}
	env, err := peer(e, d, w, "WITH first AS (INSERT INTO inbox (id) VALUES (%s) ON CONFLICT DO NOTHING RETURNING id) "+
		"INSERT INTO ledger (id, size) SELECT id, %s FROM first")
	if err != nil {
		return err
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, python, args...)
		cmd.Dir, cmd.Env = e.Dir, env
		return cmd
	}
	if err := run(command("tasks.py")); err != nil {
		return err
	}
	worker := command("-m", "celery", "-A", "tasks", "worker", "--concurrency", "4", "-O", "fair", "--without-gossip", "--without-mingle", "--without-heartbeat")
	worker.Cancel = func() error { return worker.Process.Signal(syscall.SIGTERM) } // it ends its processes
	if err := worker.Start(); err != nil {
		return err
	}
	pool, err := d.Pool(ctx, 1)
	if err == nil {
		err = harness.Until(ctx, func(ctx context.Context) (bool, error) {
			l, err := load.ReadLedger(ctx, pool)
			return l.Rows >= w.N, err
		})
	}
	err = errors.Join(err, worker.Process.Signal(syscall.SIGTERM))
	_ = worker.Wait()
	return err
}

// peer writes the deliveries to a file, and returns the environment of a program that reads it.
func peer(e *harness.Env, d *harness.Database, w load.Work, effect string) ([]string, error) {
	var b bytes.Buffer
	for _, m := range w.Deliveries {
		if err := json.Compact(&b, m.Body); err != nil {
			return nil, err
		}
		b.WriteByte('\n')
	}
	path := filepath.Join(e.Dir, "deliveries.jsonl")
	return append(os.Environ(), "REDIS="+e.Redis(), "BROKER=redis://"+e.Redis()+"/0", "DATABASE_URL="+d.URL, "DELIVERIES="+path,
		"EFFECT="+effect), os.WriteFile(path, b.Bytes(), 0o644)
}
