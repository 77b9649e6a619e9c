package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
)

// environment stands in for the Runtime API and the Extensions API of one environment of AWS Lambda.
type environment struct {
	t           *testing.T
	host        string
	invocations chan []byte      // events for the function
	responses   chan [2]string   // path and body of what it responded
	ready       chan struct{}    // the extension asked for its next event
	shutdown    chan struct{}    // closed: SHUTDOWN
	registered  chan http.Header // of the extension
}

func newEnvironment(t *testing.T) *environment {
	e := &environment{
		t: t, invocations: make(chan []byte), responses: make(chan [2]string), ready: make(chan struct{}, 1), shutdown: make(chan struct{}),
		registered: make(chan http.Header, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /2020-01-01/extension/register", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"events":["SHUTDOWN"]}` {
			t.Errorf("registered for %s: %v", body, err)
		}
		e.registered <- r.Header
		w.Header().Set("Lambda-Extension-Identifier", "extension-1")
		_, _ = io.WriteString(w, `{"functionName":"charge","functionVersion":"1","handler":"charge.handler"}`)
	})
	mux.HandleFunc("GET /2020-01-01/extension/event/next", func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("Lambda-Extension-Identifier"); id != "extension-1" {
			t.Errorf("identifier %q", id)
		}
		e.ready <- struct{}{}
		select {
		case <-e.shutdown:
			_, _ = io.WriteString(w, `{"eventType":"SHUTDOWN","shutdownReason":"spindown","deadlineMs":1}`)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case event := <-e.invocations:
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "request-1")
			_, _ = w.Write(event)
		case <-r.Context().Done():
		}
	})
	mux.HandleFunc("POST /2018-06-01/runtime/invocation/request-1/{path}", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		e.responses <- [2]string{r.PathValue("path"), string(body)}
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	e.host = strings.TrimPrefix(srv.URL, "http://")
	return e
}

// extension starts the extension and returns it and its address.
func (e *environment) extension(binary, store string) (*process.Process, string) {
	e.t.Helper()
	var out process.Output
	cmd := exec.Command(binary, "extension", "--store", store, "--listen", "127.0.0.1:0", "-o", "json")
	cmd.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+e.host, "AWS_LAMBDA_FUNCTION_NAME=charge")
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	p := process.StartTest(e.t, cmd)
	<-e.ready
	if name := (<-e.registered).Get("Lambda-Extension-Name"); name != "semel" {
		e.t.Errorf("registered as %q", name)
	}
	line, err := p.Await(e.t.Context(), &out, process.Contains("listening"))
	if err != nil {
		e.t.Fatal(err)
	}
	var got struct{ Listening string }
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		e.t.Fatal(err)
	}
	return p, got.Listening
}

// invoke sends an event to the function and returns its response; "" if the function died.
func (e *environment) invoke(function *process.Process, event string) (path, body string) {
	e.t.Helper()
	select {
	case e.invocations <- []byte(event):
	case <-function.Done():
		e.t.Fatalf("the function has ended: %s", function.State())
	}
	select {
	case r := <-e.responses:
		return r[0], r[1]
	case <-function.Done():
		return "", ""
	}
}

// TestFM3_LambdaExtension runs functions in Python and Node.js with the extension: duplicates, a mismatch, a function that dies
// after its effect, and the end of the environment.
func TestFM3_LambdaExtension(t *testing.T) {
	binary := semelBinary(t)
	for language, program := range map[string]string{"python3": "charge.py", "node": "charge.mjs"} {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(language); err != nil {
				server.LeaveOut(t, language, "it is not installed")
			}
			dir := t.TempDir()
			effects := filepath.Join(dir, "effects.jsonl")
			e := newEnvironment(t)
			extension, url := e.extension(binary, "sqlite:"+filepath.Join(dir, "records.db"))
			function := func() *process.Process {
				cmd := exec.Command(language, filepath.Join("testdata", "lambda", program), effects)
				cmd.Env = append(os.Environ(), "AWS_LAMBDA_RUNTIME_API="+e.host, "SEMEL_URL="+url)
				cmd.Stderr = os.Stderr
				return process.StartTest(t, cmd)
			}
			f := function()
			const order = `{"order_id":"order-%d","amount":%d,"milliseconds":%d%s}`
			for range 2 {
				path, body := e.invoke(f, fmt.Sprintf(order, 7, 42, 60_000, ""))
				if path != "response" || !strings.Contains(strings.ReplaceAll(body, " ", ""), `{"charged":42}`) {
					t.Errorf("%s: %s", path, body)
				}
			}
			if path, body := e.invoke(f, fmt.Sprintf(order, 7, 43, 60_000, "")); path != "error" || !strings.Contains(body, "Mismatch") {
				t.Errorf("%s: %s", path, body)
			}
			if path, body := e.invoke(f, fmt.Sprintf(order, 8, 42, 1, `,"dies":true`)); path != "" {
				t.Errorf("%s: %s", path, body)
			}
			f = function()
			for path, body := "error", "Busy"; path == "error"; {
				if !strings.Contains(body, "Busy") { // until the claim of the one that died ends
					t.Fatal(body)
				}
				path, body = e.invoke(f, fmt.Sprintf(order, 8, 42, 60_000, `,"dies":true`))
			}
			checkLambdaEffects(t, effects)
			close(e.shutdown)
			if err := extension.Wait(); err != nil {
				t.Errorf("extension: %v", err)
			}
		})
	}
}

// checkLambdaEffects: one of the first order, and two of the second, the second of which had the same effect key, and the doubt.
func checkLambdaEffects(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	type effect struct {
		OrderID   string `json:"order_id"`
		EffectKey string `json:"effect_key"`
		Unknown   bool   `json:"unknown"`
	}
	var all []effect
	for line := range strings.Lines(string(b)) {
		var e effect
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if len(all) != 3 || all[0].OrderID != "order-7" || all[1].OrderID != "order-8" || all[1].Unknown ||
		all[2] != (effect{"order-8", all[1].EffectKey, true}) {
		t.Errorf("effects %+v", all)
	}
}

// TestExtensionOutsideOfLambda: the errors name the cause.
func TestExtensionOutsideOfLambda(t *testing.T) {
	binary := semelBinary(t)
	for want, variables := range map[string][]string{
		"AWS_LAMBDA_RUNTIME_API is not set": {"AWS_LAMBDA_RUNTIME_API=", "AWS_LAMBDA_FUNCTION_NAME=charge"},
		"needs --consumer":                  {"AWS_LAMBDA_RUNTIME_API=127.0.0.1:1", "AWS_LAMBDA_FUNCTION_NAME="},
		"register the extension":            {"AWS_LAMBDA_RUNTIME_API=127.0.0.1:1", "AWS_LAMBDA_FUNCTION_NAME=charge"},
	} {
		cmd := exec.CommandContext(t.Context(), binary, "extension", "--store", "sqlite:"+filepath.Join(t.TempDir(), "r.db"), "--listen", "127.0.0.1:0")
		cmd.Env = append(os.Environ(), variables...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: want %q in %s", err, want, out)
		}
	}
}
