//go:build unix

package output

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestAppendFileIsItsOwnersAlone whatever the umask is; a file that is there keeps its mode and what is in it.
func TestAppendFileIsItsOwnersAlone(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	if err := os.WriteFile(old, []byte("a"), 0o640); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{filepath.Join(dir, "new"): 0o600, old: 0o640} {
		f, err := AppendFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("b"); err != nil {
			t.Fatal(err)
		}
		info, err := f.Stat()
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %o", path, info.Mode(), err, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(old); err != nil || string(b) != "ab" {
		t.Errorf("%q, %v", b, err)
	}
}
