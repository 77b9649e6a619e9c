//go:build unix

package sqlite

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/semel-dev/semel/driver"
)

// TestFilesAreTheirOwnersAlone: bodies and results are in the file and in its companions, which other users of the machine
// must not read whatever the umask is. A file that is there keeps its mode.
func TestFilesAreTheirOwnersAlone(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := filepath.Join(t.TempDir(), "a b%20?#c+d&e=é")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"new.db": 0o600, "old.db": 0o640, "100%? #.db": 0o600} {
		path := filepath.Join(dir, name)
		if name == "old.db" {
			if err := os.WriteFile(path, nil, want); err != nil {
				t.Fatal(err)
			}
		}
		db, err := Open(t.Context(), path, Options{Create: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Queue("q").Send(t.Context(), driver.Message{ID: "m", Body: []byte("secret")}); err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if got := info.Mode().Perm(); got != want {
				t.Errorf("%s%s has mode %o, want %o", name, suffix, got, want)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".semel-mode-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}
