package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/process"
)

// being is what became of the process of a state.
type being int

const (
	gone being = iota
	standing
)

const (
	// responding bounds the wait for a process to identify itself, starting the time until it is ready, and removing the time
	// that it takes to remove everything.
	responding = 5 * time.Second
	starting   = 5 * time.Minute
	removing   = 2 * time.Minute
	// leaving is how long a process may take to end when all it has to do is end.
	leaving = 10 * time.Second
)

// ask finds out whether the process of a state is there. Another program at the same port is not it, whatever its number.
// A program that does not respond may be either, and is an error.
func (s State) ask(ctx context.Context) (being, error) {
	if s.Endpoint == "" {
		if !process.Gone(s.PID) && time.Since(s.Started) < starting {
			return gone, output.Failed("a lab is just starting in %s, by process %d", s.Dir, s.PID).WithHint("try again in a moment")
		}
		return gone, nil
	}
	ctx, cancel := context.WithTimeout(ctx, responding)
	defer cancel()
	var id identity
	status, err := s.post(ctx, "lab/down?dry-run=1", &id)
	switch {
	case refused(err):
		return gone, nil
	case err != nil:
		return gone, output.Failed("what listens at %s does not say whether it is the lab: %w", s.Endpoint, err).
			WithHint("if process %d is semel and hangs, end it; then semel lab down", s.PID)
	case status == http.StatusOK && id.PID == s.PID:
		return standing, nil
	}
	return gone, nil
}

// refused reports that nothing listens: the process, which listens as long as it lives, is gone.
func refused(err error) bool {
	op := (*net.OpError)(nil)
	return errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &op) && op.Op == "dial" && !op.Timeout()
}

// post asks the process of the state, with the token. A response that is not JSON leaves v as it is.
func (s State) post(ctx context.Context, path string, v any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.Endpoint+path, http.NoBody)
	if err != nil {
		return 0, fmt.Errorf("ask the lab: %w", err)
	}
	req.Header.Set(tokenHeader, s.Token)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy: it is on this machine
	resp, err := client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the lab: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, fmt.Errorf("ask the lab: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		_ = json.Unmarshal(b, v)
	}
	return resp.StatusCode, nil
}

// Down takes down the sandbox of a folder, and returns what it removed. If the process was gone already, it removes what the
// process left, and the first item reports that. With dry it removes nothing: the items are what it would remove. The error
// is ErrNotUp if nothing is up.
func Down(ctx context.Context, dir string, dry bool) ([]Item, error) {
	s, err := Load(dir)
	if err != nil {
		return nil, err
	}
	is, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	process := Item{What: "process", Name: strconv.Itoa(s.PID)}
	if is == gone {
		process.Kept = "it was gone already"
	}
	switch {
	case dry:
		there, _ := s.elsewhere()
		files, err := s.clear(true)
		if is == standing {
			there = append([]Item{{What: "port", Name: s.Endpoint}}, there...)
		}
		return append(append([]Item{process}, there...), files...), err
	case is == gone:
		rest, err := s.removeRest()
		return append([]Item{process}, rest...), err
	}
	ctx, cancel := context.WithTimeout(ctx, removing)
	defer cancel()
	var out outcome
	status, err := s.post(ctx, "lab/down", &out)
	switch {
	case err != nil:
		return nil, fmt.Errorf("take the lab down: %w", err)
	case out.Error != "":
		return out.Gone, output.Failed("the lab could not remove everything: %s", out.Error).WithHint("semel lab down tries again")
	case status != http.StatusOK:
		return nil, output.Failed("the lab did not let itself be taken down: status %d", status)
	}
	waitFor(ctx, s.PID)
	rest, err := s.clear(false) // nothing, where open files can be removed
	return append(append([]Item{process}, out.Gone...), rest...), err
}

// removeRest removes what a process left that is gone.
func (s State) removeRest() ([]Item, error) {
	there, p := s.elsewhere()
	if err := place.Remove(context.Background(), p); err != nil {
		return nil, err
	}
	files, err := s.clear(false)
	return append(there, files...), err
}

// waitFor waits until a process is gone, or for a while: one whose parent does not wait for it stays in the list.
func waitFor(ctx context.Context, pid int) {
	ctx, cancel := context.WithTimeout(ctx, leaving)
	defer cancel()
	for pause := time.Millisecond; !process.Gone(pid); pause = min(2*pause, 100*time.Millisecond) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
