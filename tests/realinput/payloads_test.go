package realinput

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest/server"
)

const npmPackage = "@octokit/webhooks-examples@7.6.1"

// payloads fetches the examples from the npm registry: one compact JSON document each, distinct by content.
func payloads(t *testing.T) []string {
	t.Helper()
	server.Command(t, "npm", "it fetches the real payloads")
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", npmPackage)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		server.LeaveOut(t, "npm", fmt.Sprintf("its registry is out of reach: %v: %s", err, out))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(found) != 1 {
		t.Fatalf("npm pack left %v: %v", found, err)
	}
	var hooks []struct {
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.Unmarshal(fromTarball(t, found[0], "package/api.github.com/index.json"), &hooks); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var out []string
	for _, h := range hooks {
		for _, e := range h.Examples {
			line := compact(t, e)
			if !seen[line] {
				seen[line] = true
				out = append(out, line)
			}
		}
	}
	if len(out) < 250 {
		t.Fatalf("only %d distinct payloads: the package has changed", len(out))
	}
	return out
}

// compact writes a document with sorted names and without spaces: its content, independently of semel's own code.
func compact(t *testing.T, raw []byte) string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func fromTarball(t *testing.T, path, name string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if h.Name == name {
			b, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
	}
}
