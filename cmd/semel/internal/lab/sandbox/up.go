package sandbox

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/internal/words"
)

// HiddenCommand is the subcommand that the command line must route to Main.
const HiddenCommand = "__lab-sandbox"

// reply is the line in which the background process reports its start.
type reply struct {
	State State       `json:"state"`
	Code  output.Code `json:"code,omitempty"`
	Text  string      `json:"text,omitempty"`
	Hint  string      `json:"hint,omitempty"`
}

// goAhead is what the background process gets once its state has arrived. Without it, it ends when its parent does.
const goAhead = "go\n"

// Prepare checks that a sandbox with these files can be set up in dir, and reserves the folder. It first removes what a
// killed process left there, and reports that to note.
func Prepare(ctx context.Context, dir string, files []Wanted, note func(string)) (State, error) {
	for i := range files {
		if err := files[i].check(); err != nil {
			return State{}, err
		}
	}
	s, err := reserve(dir)
	if !errors.Is(err, fs.ErrExist) {
		if err != nil {
			err = output.Usage("--dir %s: %w", dir, err).WithHint("--dir with a folder that can be written")
		}
		return s, err
	}
	old, err := Load(dir)
	if err != nil {
		return s, fmt.Errorf("--dir %s: %w", dir, err)
	}
	switch is, err := old.ask(ctx); {
	case err != nil:
		return s, err
	case is == standing:
		return s, output.Failed("the lab is up already: %s, process %d, since %s", old.Endpoint, old.PID, old.Started.Local().Format(time.TimeOnly)).
			WithHint("semel lab down%s, or another --dir and --addr for a second one", dirFlag(dir))
	}
	note(fmt.Sprintf("the lab in %s ended without semel lab down: what it left is removed first", old.Dir))
	if _, err := old.removeRest(); err != nil {
		return s, err
	}
	if s, err = reserve(dir); err != nil {
		return s, output.Failed("--dir %s: %w", dir, err).WithHint("another semel lab up may be starting there: try again")
	}
	return s, nil
}

// dirFlag is what leads to the folder; nothing where it is the default one.
func dirFlag(dir string) string {
	if filepath.Clean(dir) == DefaultDir {
		return ""
	}
	return " --dir " + words.Quote(dir)
}

// DefaultDir is the folder of a sandbox, in the working directory.
const DefaultDir = ".semel-lab"

// Up starts the sandbox in the background, and returns when it is ready: its process then lives on until Down. When ctx ends
// before, the process takes away what it made. command starts it: the own program with HiddenCommand.
func Up(ctx context.Context, spec Spec, command []string) (State, error) {
	log, err := output.AppendFile(spec.State.LogPath())
	if err != nil {
		return State{}, fmt.Errorf("open the lab's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	text, err := json.Marshal(spec)
	if err != nil {
		return State{}, fmt.Errorf("start the lab: %w", err)
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // it is to live on
	cmd.Stderr = log
	process.Detach(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return State{}, fmt.Errorf("start the lab: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return State{}, fmt.Errorf("start the lab: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return State{}, errors.Join(fmt.Errorf("start the lab: %w", err), spec.State.forget())
	}
	hurry := context.AfterFunc(ctx, func() { _ = stdin.Close() })
	defer hurry()
	_, _ = stdin.Write(append(text, '\n')) // if the process died, there is no reply
	var r reply
	if err = json.NewDecoder(stdout).Decode(&r); err != nil {
		_ = stdin.Close()
		err = errors.Join(fmt.Errorf("the lab's process ended before it was ready: %w", cmd.Wait()), spec.State.forget())
	} else if r.Code != "" {
		_ = stdin.Close()
		_ = cmd.Wait() // it has removed what it made
		err = &output.Error{Code: r.Code, Err: errors.New(r.Text), Hint: r.Hint}
	} else if !hurry() {
		_ = cmd.Wait()
	}
	if ctx.Err() != nil {
		return r.State, context.Cause(ctx)
	}
	if err != nil {
		return r.State, err
	}
	if _, err := io.WriteString(stdin, goAhead); err != nil {
		return r.State, fmt.Errorf("the lab's process ended as soon as it was ready: %w", err)
	}
	return r.State, errors.Join(stdin.Close(), cmd.Process.Release())
}

// forget removes the folder of a sandbox that did not start.
func (s State) forget() error {
	_, err := s.clear(false)
	return err
}

// Main is the background process: it reads its Spec from standard input, reports on standard output when it is ready,
// and serves until it is taken down or gets a SIGTERM. It returns the exit status.
func Main([]string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	var spec Spec
	if err == nil {
		err = json.Unmarshal(line, &spec)
	}
	if err != nil {
		fmt.Fprintln(output.NewSafe(os.Stderr), "read the spec from standard input:", err)
		return 1
	}
	go func() {
		if line, _ := in.ReadString('\n'); line != goAhead {
			stop() // its parent is gone, or wants it gone
		}
	}()
	replies := json.NewEncoder(os.Stdout)
	replied := false
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	_, err = Serve(ctx, spec, log, func(s State) error {
		replied = true
		return errors.Join(replies.Encode(reply{State: s}), os.Stdout.Close())
	})
	if err == nil {
		return 0
	}
	if e := output.As(err); !replied {
		_ = replies.Encode(reply{Code: e.Code, Text: e.Error(), Hint: e.Hint})
	}
	log.Error("the lab ended", "err", err)
	return 1
}
