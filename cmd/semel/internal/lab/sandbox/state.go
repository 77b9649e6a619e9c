package sandbox

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
)

// The files of a folder, next to an SQLite database with its own.
const (
	stateFile   = "state.json"
	logFile     = "log"
	effectsFile = "effects.jsonl"
)

// State is what the folder of a sandbox knows about it. It may hold a password, and only its owner can read it.
type State struct {
	// PID is the process, Token how it knows its owner, Endpoint its URL with a / at the end; "" while it starts.
	PID      int       `json:"pid"`
	Token    string    `json:"token"`
	Endpoint string    `json:"endpoint"`
	Started  time.Time `json:"started"`
	// Dir is the folder, as an absolute path.
	Dir  string     `json:"dir"`
	URLs place.URLs `json:"urls"`
	// Vars are the settings of a worker elsewhere that is to share the queue.
	Vars []Var `json:"vars"`
	// Files are those that Up wrote for the user, outside of the folder.
	Files []File `json:"files,omitempty"`
}

// Var is an environment variable.
type Var struct{ Name, Value string }

// File is a file that was written for the user: it is removed as long as it is what was written.
type File struct {
	Path string `json:"path"`
	Sum  string `json:"sha256"`
}

// LogPath is where the worker's log is.
func (s State) LogPath() string { return filepath.Join(s.Dir, logFile) }

// EffectsPath is the ledger of the simulated handler: a line of JSON for each run.
func (s State) EffectsPath() string { return filepath.Join(s.Dir, effectsFile) }

// ErrNotUp reports a folder in which nothing is up.
var ErrNotUp = errors.New("nothing is up")

// Load reads the state of a folder. The error is ErrNotUp where there is none.
func Load(dir string) (State, error) {
	var s State
	b, err := os.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, ErrNotUp
	}
	if err != nil {
		return s, fmt.Errorf("read the lab's state: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("%s is no state of a lab: %w", filepath.Join(dir, stateFile), err)
	}
	return s, nil
}

// save writes the state, whole or not at all.
func (s State) save() error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	next := filepath.Join(s.Dir, stateFile+".new")
	if err := os.WriteFile(next, append(b, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	if err := os.Rename(next, filepath.Join(s.Dir, stateFile)); err != nil {
		return fmt.Errorf("write the lab's state: %w", err)
	}
	return nil
}

// reserve makes the folder, and a state in it for a sandbox that starts. The error is fs.ErrExist where there is a
// state already.
func reserve(dir string) (State, error) {
	s := State{PID: os.Getpid(), Token: rand.Text(), Started: time.Now().UTC()}
	var err error
	if s.Dir, err = filepath.Abs(dir); err != nil {
		return s, fmt.Errorf("find the lab's folder: %w", err)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return s, fmt.Errorf("make the lab's folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.Dir, stateFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return s, fmt.Errorf("write the lab's state: %w", err)
	}
	if err := f.Close(); err != nil {
		return s, fmt.Errorf("write the lab's state: %w", err)
	}
	return s, s.save()
}
