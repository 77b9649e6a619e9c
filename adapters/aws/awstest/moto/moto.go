// Package moto starts moto_server, somebody else's emulator of Amazon Web Services, for tests that compare the fakes with it.
// A difference is named in the test with its reason: neither the fake nor moto is the service.
package moto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// startTimeout bounds the start: moto loads some hundred modules.
const startTimeout = time.Minute

// script ends the server when the input ends, which it does when the test has ended in whatever way.
const script = `"$1" -H 127.0.0.1 -p "$2" </dev/null &
pid=$!
cat >/dev/null
kill "$pid" 2>/dev/null
wait "$pid"`

// Start starts a server of the test's own on a free port of the loopback interface, and returns its URL. It is stopped with the
// test. A test that cannot have one is skipped, and says so: SKIPPED, NOT PASSED. SEMEL_SKIP=moto asks for that.
func Start(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		skip(t, "it is not for -short")
	}
	if slices.Contains(strings.FieldsFunc(os.Getenv("SEMEL_SKIP"), func(r rune) bool { return r == ',' || r == ' ' }), "moto") {
		skip(t, "SEMEL_SKIP has it")
	}
	bin, err := exec.LookPath("moto_server")
	if err != nil {
		skip(t, "it is not installed (pip install 'moto[server]')")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		skip(t, "there is no sh to guard it with")
	}
	for range 3 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if url, ok := start(t, sh, bin, port); ok {
			return url
		}
	}
	t.Fatal("moto_server does not start: its log is above")
	return ""
}

// skip says it on standard error as well, which go test shows of a package that fails or with -v, and a compiled test always.
// Of a package that passes it shows nothing: .ci/run says by itself that there is no moto_server.
func skip(t testing.TB, why string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "SKIPPED, NOT PASSED: %s needs moto_server, and %s\n", t.Name(), why)
	t.Skipf("SKIPPED, NOT PASSED: moto_server: %s", why)
}

// start starts a server on a port, which another one may have taken meanwhile. That one may be a moto too, with what another test
// made in it: it is only good when the new server itself says that it listens.
func start(t testing.TB, sh, bin, port string) (url string, ok bool) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "moto.log")
	logFile, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer logFile.Close()
	cmd := exec.Command(sh, "-c", script, "moto-guard", bin, port)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	url = "http://127.0.0.1:" + port
	says := func(words string) bool {
		text, err := os.ReadFile(path)
		return err == nil && bytes.Contains(text, []byte(words))
	}
	if err := await(url, says); err != nil {
		_ = in.Close()
		_ = cmd.Wait()
		text, _ := os.ReadFile(path)
		t.Logf("start moto_server: %v; its log:\n%s", err, bytes.TrimSpace(text))
		return "", false
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it was told to end: its status tells nothing
	})
	return url, true
}

// await waits until it says that it listens and answers as moto does.
func await(url string, says func(words string) bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := errors.New("it does not listen")
		switch {
		case says("already in use"):
			return errors.New("another one has the port")
		case says("Running on " + url):
			if err = ask(ctx, url); err == nil {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func ask(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/moto-api/data.json", nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", req.URL, res.Status)
	}
	return nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
