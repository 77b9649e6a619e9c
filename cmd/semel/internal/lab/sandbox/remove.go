package sandbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/semel-dev/semel/cmd/semel/internal/lab/place"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
)

// Item is something that was there and is gone, or was kept for a reason.
type Item struct {
	// What is process, port, file, folder, queue, records or services.
	What string `json:"what"`
	Name string `json:"name"`
	// Kept is why it is still there; "" = it is removed.
	Kept string `json:"kept,omitempty"`
}

// inside are the files that a folder may have.
var inside = []string{
	place.DatabaseFile, place.DatabaseFile + "-wal", place.DatabaseFile + "-shm", place.DatabaseFile + "-journal",
	effectsFile, logFile, stateFile + ".new", stateFile,
}

// clear removes the files of the user that are still what was written, and the folder with what is known in it: other files
// are kept, and the folder with them. The state goes last, so that a failed removal can be tried again. dry removes nothing,
// and only lists what is there.
func (s State) clear(dry bool) (gone []Item, err error) {
	remove := os.Remove
	if dry {
		remove = func(path string) error {
			_, err := os.Lstat(path)
			return err
		}
	}
	for _, f := range s.Files {
		b, err := os.ReadFile(f.Path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return gone, fmt.Errorf("look at %s: %w", f.Path, err)
		case sum(b) != f.Sum:
			gone = append(gone, Item{"file", f.Path, "it was changed since then"})
		default:
			if err := remove(f.Path); err != nil {
				return gone, fmt.Errorf("clean up: %w", err)
			}
			gone = append(gone, Item{What: "file", Name: f.Path})
		}
	}
	for _, name := range inside {
		path := filepath.Join(s.Dir, name)
		err := remove(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return gone, fmt.Errorf("clean up: %w", err)
		}
		gone = append(gone, Item{What: "file", Name: path})
	}
	if dry {
		return append(gone, Item{What: "folder", Name: s.Dir}), nil
	}
	return s.clearFolder(gone)
}

func (s State) clearFolder(gone []Item) ([]Item, error) {
	rest, err := os.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return gone, nil
	}
	if err != nil {
		return gone, fmt.Errorf("clean up: %w", err)
	}
	if len(rest) > 0 {
		return append(gone, Item{"folder", s.Dir, "it has other files: " + rest[0].Name()}), nil
	}
	if err := os.Remove(s.Dir); err != nil {
		return gone, fmt.Errorf("clean up: %w", err)
	}
	return append(gone, Item{What: "folder", Name: s.Dir}), nil
}

// elsewhere lists what is not in the folder (queues, tables and schemas of servers), and returns the place without the
// rest.
func (s State) elsewhere() (there []Item, p place.URLs) {
	p = s.URLs
	shown := p.Shown()
	if p.Fakes != "" {
		there = append(there, Item{What: "services", Name: "SQS and DynamoDB at " + p.Fakes})
	}
	for _, one := range []struct {
		what, shown string
		raw         *string
	}{{"queue", shown.Queue, &p.Queue}, {"records", shown.Store, &p.Store}} {
		if t, err := open.Parse(one.what, *one.raw); err == nil && t.Scheme == "sqlite" && filepath.Dir(t.Path) == s.Dir {
			*one.raw = "" // it goes as a file
		}
		if *one.raw != "" {
			there = append(there, Item{What: one.what, Name: one.shown})
		}
	}
	return there, p
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}
