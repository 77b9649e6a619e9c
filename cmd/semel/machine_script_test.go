package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/cmd/semel/internal/api/asltest"
)

// machineCommand is the command "machine NAME URL N": N executions at once of a state machine of deploy/aws/stepfunctions, with
// one event, against the API at a URL. It prints where they ended, and how often the function ran.
func machineCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: machine NAME URL N")
	}
	_, here, _, _ := runtime.Caller(0)
	m, err := asltest.Load(filepath.Join(filepath.Dir(here), "../../deploy/aws/stepfunctions", args[0]+".asl.json"))
	ts.Check(err)
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	server := strings.TrimSpace(ts.ReadFile(args[1]))
	var mu sync.Mutex
	var wg sync.WaitGroup
	var ends []string
	runs := 0
	w := asltest.World{
		Faster: 10_000,
		API:    func(r *http.Request) (int, []byte, error) { return ask(server, r) },
		Work: func(map[string]any) (any, error) {
			mu.Lock()
			runs++
			mu.Unlock()
			time.Sleep(200 * time.Millisecond) // the others have time to ask
			return "rows", nil
		},
	}
	for i := range n {
		wg.Go(func() {
			world := w
			world.Name = fmt.Sprint("e", i)
			end, _, err := m.Run(context.Background(), world, []byte(`{"id":"`+world.Name+`","detail":{"bucket":{"name":"b"},
				"object":{"key":"a b|c.csv","etag":"e","sequencer":"01"}}}`))
			mu.Lock()
			defer mu.Unlock()
			if fail := (*asltest.StateError)(nil); err != nil && !errors.As(err, &fail) {
				end = err.Error()
			}
			ends = append(ends, end)
		})
	}
	wg.Wait()
	slices.Sort(ends)
	_, _ = fmt.Fprintf(ts.Stdout(), "%s, %d runs\n", strings.Join(ends, " "), runs)
}

// ask sends a request of a machine to the server instead of to the host that it names.
func ask(server string, r *http.Request) (int, []byte, error) {
	to, err := http.NewRequestWithContext(r.Context(), r.Method, server+r.URL.Path, r.Body)
	if err != nil {
		return 0, nil, err
	}
	to.Header = r.Header
	res, err := http.DefaultClient.Do(to)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, b, err
}
