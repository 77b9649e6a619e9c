// Package moto starts moto_server, an independent emulator of Amazon Web Services, for tests that compare the fakes with it.
// A test names each difference with its reason: neither the fake nor moto is the service.
package moto

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/semeltest/server"
)

// startTimeout bounds the start: moto loads some hundred modules.
const startTimeout = 3 * time.Minute

// script ends the server when its input ends, which happens however the test ends.
const script = `"$1" -H 127.0.0.1 -p "$2" </dev/null &
pid=$!
cat >/dev/null
kill "$pid" 2>/dev/null
wait "$pid"`

// Start starts a server for the test on a free port of the loopback interface, and returns its URL. The server stops with
// the test. If moto_server is not installed, the test is left out (server.LeaveOut).
func Start(t testing.TB) string {
	t.Helper()
	bin := server.Command(t, "moto_server", "pip install 'moto[server]'")
	sh := server.Command(t, "sh", "it guards moto_server")
	for range 3 {
		port, err := server.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if url, ok := start(t, sh, bin, strconv.Itoa(port)); ok {
			return url
		}
	}
	t.Fatal("moto_server does not start: its log is above")
	return ""
}

// Config configures clients of the SDK for an emulator. Each call is made once.
func Config(url string) aws.Config {
	return aws.Config{
		Region: awstest.Region, BaseEndpoint: &url, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("semel", "semel", ""),
		HTTPClient:  &http.Client{Transport: whole{&http.Transport{DisableKeepAlives: true}}},
	}
}

// whole buffers the request before it sends it, and the response before it returns it. The SDK closes the request's body
// when it has the header of the response, which can end the connection before the rest is read.
type whole struct{ http.RoundTripper }

func (w whole) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		sent, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	out, err := w.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Body.Close() }()
	received, err := io.ReadAll(out.Body)
	out.Body = io.NopCloser(bytes.NewReader(received))
	return out, err
}

// start starts a server on a port, which another server may have taken in the meantime. That may be a moto of another test,
// so only the new server's own report that it listens counts.
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
		_ = cmd.Wait() // it was ended by the test: its status has no meaning
	})
	return url, true
}

// await waits until the server reports that it listens, and responds as moto does.
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
