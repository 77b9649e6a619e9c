// Package browser tests semel's pages in a headless Chromium: the lab's report and its live view. If no Chromium is
// installed, its tests are skipped with a message.
package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/semel-dev/semel/internal/process"
)

// names are those under which a Chromium is installed, the first that is found is taken. SEMEL_CHROMIUM names another.
var names = []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "headless_shell"}

// Find returns the path of a Chromium, or false.
func Find() (string, bool) {
	if p := os.Getenv("SEMEL_CHROMIUM"); p != "" {
		return p, true
	}
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			return p, true
		}
	}
	return "", false
}

// Chromium is a running headless browser. It is spoken to over two pipes (the DevTools protocol), so that it listens on
// no port.
type Chromium struct {
	proc *process.Process
	in   *os.File
	dir  string
	done chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[int]chan result
	pages   map[string]*Page // by session
}

type result struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

type frame struct {
	ID      int             `json:"id,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	result
}

// wait bounds every call: a browser on a busy machine is slow, a browser that does not respond is broken.
const wait = 10 * time.Minute

// Start starts the browser at path, with an empty profile. Close ends it.
func Start(path string) (*Chromium, error) {
	dir, err := os.MkdirTemp("", "semel-chromium-")
	if err != nil {
		return nil, fmt.Errorf("make a profile: %w", err)
	}
	theirs, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	out, responses, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	// Without a sandbox of its own: it needs rights that a container does not give, and every page is ours.
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", //nolint:noctx // Close ends it
		"--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--remote-debugging-pipe", "--user-data-dir="+dir, "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, responses} // 3: commands, 4: responses
	proc, err := process.Start(cmd)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", path, err), os.RemoveAll(dir))
	}
	_, _ = theirs.Close(), responses.Close() // the browser has its own
	c := &Chromium{
		proc: proc, in: in, dir: dir, done: make(chan struct{}), waiting: map[int]chan result{}, pages: map[string]*Page{},
	}
	go c.read(out)
	return c, nil
}

// Close ends the browser and removes its profile.
func (c *Chromium) Close() {
	_, _ = c.call("", "Browser.close", nil)
	select {
	case <-c.proc.Done():
	case <-time.After(10 * time.Second):
		c.proc.Kill()
	}
	_ = c.in.Close()
	_ = os.RemoveAll(c.dir)
}

func (c *Chromium) read(out *os.File) {
	defer close(c.done)
	defer func() { _ = out.Close() }()
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var f frame
		if json.Unmarshal(bytes.TrimSuffix(line, []byte{0}), &f) != nil {
			continue
		}
		c.mu.Lock()
		ch, page := c.waiting[f.ID], c.pages[f.Session]
		delete(c.waiting, f.ID)
		c.mu.Unlock()
		switch {
		case f.ID > 0 && ch != nil:
			ch <- f.result
		case page != nil:
			page.event(f.Method, f.Params)
		}
	}
}

func (c *Chromium) call(session, method string, params any) (json.RawMessage, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", method, err)
	}
	if params == nil {
		raw = []byte("{}")
	}
	ch := make(chan result, 1)
	c.mu.Lock()
	c.next++
	id := c.next
	c.waiting[id] = ch
	line, err := json.Marshal(frame{ID: id, Session: session, Method: method, Params: raw})
	if err == nil {
		_, err = c.in.Write(append(line, 0))
	}
	c.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("send %s: %w", method, err)
	}
	select {
	case a := <-ch:
		if a.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, a.Error.Message)
		}
		return a.Result, nil
	case <-c.done:
		return nil, fmt.Errorf("%s: the browser is gone", method)
	case <-time.After(wait):
		return nil, fmt.Errorf("%s: no response within %s", method, wait)
	}
}
