package top

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"
)

// every is the time between two looks, that of the console: some queues receive their dead letters to list them.
const every = 5 * time.Second

// The control sequences that the view needs: another screen without a cursor, and back.
const (
	enter = "\x1b[?1049h\x1b[?25l"
	leave = "\x1b[?25h\x1b[?1049l"
)

// Live shows frames until ctx ends or q is pressed. keys are what a terminal in raw mode sends, size is the terminal's.
func Live(ctx context.Context, s *Source, keys io.Reader, out io.Writer, size func() (width, height int)) (err error) {
	pressed := make(chan byte)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the next key: a read of a terminal cannot be interrupted
		for b := make([]byte, 1); ; {
			n, err := keys.Read(b)
			if err != nil {
				cancel()
				return
			}
			if n == 0 {
				continue
			}
			select {
			case pressed <- b[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	if _, err := io.WriteString(out, enter); err != nil {
		return err
	}
	defer func() {
		_, lerr := io.WriteString(out, leave)
		err = errors.Join(err, lerr)
	}()
	return frames(ctx, s, pressed, out, size)
}

// frames takes a look, shows it, and waits for the next one or a key.
func frames(ctx context.Context, s *Source, pressed <-chan byte, out io.Writer, size func() (int, int)) error {
	paused, now := false, s.Look(ctx)
	for ctx.Err() == nil {
		width, height := size()
		lines := Frame(&now, width, height, paused)
		if _, err := io.WriteString(out, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(every):
			if !paused {
				now = s.Look(ctx)
			}
		case k := <-pressed:
			switch k {
			case 'q', 'Q', 3, 4: // also Ctrl-C and Ctrl-D
				return nil
			case ' ':
				paused = !paused
			}
		}
	}
	return nil
}
