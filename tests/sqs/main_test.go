// Package sqs runs clients that we did not write against semel sqs, each in its own process: the aws command, the AWS SDK for
// JavaScript in its versions 3 and 2, sqs-consumer; and semel's own worker while everything goes wrong.
package sqs

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/binary"
)

// semel is the binary.
var semel string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "semel-sqs-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if semel, err = binary.Build(); err != nil {
		fmt.Println(err)
		return 1
	}
	modules = filepath.Join(dir, "node")
	return m.Run()
}

// endpoint is a semel sqs that runs.
type endpoint struct {
	*testing.T
	*process.Process
	url  string
	errs process.Output
}

// start runs semel sqs on a free port.
func start(t *testing.T, args ...string) *endpoint {
	t.Helper()
	e := &endpoint{T: t}
	var out process.Output
	cmd := exec.Command(semel, append([]string{"sqs", "--listen", "127.0.0.1:0", "-o", "json"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &e.errs
	e.Process = process.StartTest(t, cmd)
	line, err := e.Await(t.Context(), &out, process.Contains(""))
	var said struct{ Listening string }
	if err = errors.Join(err, json.Unmarshal([]byte(line), &said)); err != nil {
		t.Fatalf("semel sqs %v: %v\n%s%s", args, err, line, &e.errs)
	}
	e.url = said.Listening
	return e
}

// end sends a signal and waits for the end.
func (e *endpoint) end(s syscall.Signal) error {
	e.Helper()
	if err := e.Signal(s); err != nil {
		e.Fatal(err)
	}
	select {
	case <-e.Done():
		return e.Wait()
	case <-time.After(5 * time.Minute):
		e.Fatalf("it goes on after %s", s)
		return nil
	}
}

// environment is that of a client: nothing of the caller's configuration, and no proxy between.
func (e *endpoint) environment() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + e.TempDir(), "AWS_ENDPOINT_URL_SQS=" + e.url, "AWS_ACCESS_KEY_ID=local",
		"AWS_SECRET_ACCESS_KEY=local", "AWS_REGION=us-east-1", "AWS_DEFAULT_REGION=us-east-1", "AWS_EC2_METADATA_DISABLED=true",
		"NO_PROXY=127.0.0.1", "PYENV_ROOT=" + os.Getenv("PYENV_ROOT"), "PYENV_VERSION=" + os.Getenv("PYENV_VERSION"),
		"AWS_SDK_JS_SUPPRESS_MAINTENANCE_MODE_MESSAGE=1",
	}
}

// client runs a program that must end well, and returns what it wrote to stdout.
func (e *endpoint) client(dir, name string, args ...string) []byte {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.Context(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, e.environment()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		e.Fatalf("%s %v: %v\n%s%s\nsemel sqs: %s", name, args, err, out, &errs, &e.errs)
	}
	return out
}

// call requests one operation, and returns the status and the body.
func (e *endpoint) call(operation string, in any) (int, string) {
	e.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		e.Fatal(err)
	}
	r, err := http.NewRequestWithContext(e.Context(), http.MethodPost, e.url, bytes.NewReader(b))
	if err != nil {
		e.Fatal(err)
	}
	r.Header.Set("X-Amz-Target", "AmazonSQS."+operation)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = got.Body.Close() }()
	out, err := io.ReadAll(got.Body)
	if err != nil {
		return 0, err.Error()
	}
	return got.StatusCode, string(out)
}

func (e *endpoint) queue(name string) string { return e.url + "/000000000000/" + name }

//go:embed clients
var clients embed.FS

var (
	modules   string
	installed = sync.OnceValue(install)
	offline   = regexp.MustCompile(`ENOTFOUND|ECONNREFUSED|ETIMEDOUT|ECONNRESET|EAI_AGAIN|ENETUNREACH|network`)
)

// errMissing means that something is not on this machine.
var errMissing = errors.New("it is missing")

// install makes the folder of the clients in JavaScript, with the modules that package-lock.json names.
func install() error {
	for _, bin := range []string{"node", "npm"} {
		if _, err := exec.LookPath(bin); err != nil {
			return fmt.Errorf("%w: %s is not installed", errMissing, bin)
		}
	}
	sub, err := fs.Sub(clients, "clients")
	if err != nil {
		return err
	}
	if err := os.CopyFS(modules, sub); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = modules
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return nil
	case offline.Match(out) || ctx.Err() != nil:
		return fmt.Errorf("%w: its registry is out of reach", errMissing)
	}
	return fmt.Errorf("npm ci: %w\n%s", err, out)
}

// node runs one of the clients.
func node(t *testing.T, script string, args ...string) string {
	t.Helper()
	if testing.Short() {
		t.Skip("it installs packages: not for -short")
	}
	if err := installed(); errors.Is(err, errMissing) {
		server.LeaveOut(t, "npm", err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	return string(start(t, args...).client(modules, "node", script))
}

func contains(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("got %q, want %q in it", text, want)
	}
}
