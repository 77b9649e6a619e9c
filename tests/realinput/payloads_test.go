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
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

const (
	npmPackage = "@octokit/webhooks-examples@7.6.1"
	// envPairs names the file of make pairs.
	envPairs = "SEMEL_PAIRS"
)

// payloads are the examples: one compact JSON document each, distinct by content. Nightly runs and make pairs take all of them,
// other runs a hundred.
func payloads(t *testing.T) []string {
	t.Helper()
	server.Command(t, "npm", "it fetches the real payloads")
	tarball, err := fetch()
	if err != nil {
		server.LeaveOut(t, "npm", err.Error())
	}
	var hooks []struct {
		Examples []json.RawMessage `json:"examples"`
	}
	if err := json.Unmarshal(fromTarball(t, tarball, "package/api.github.com/index.json"), &hooks); err != nil {
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
	if os.Getenv(envPairs) == "" && !semeltest.Nightly() {
		out = out[:100]
	}
	return out
}

// fetch is the package as the npm registry has it.
var fetch = sync.OnceValues(func() (tarball []byte, err error) {
	dir, err := os.MkdirTemp("", "semel-realinput-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "pack", "--silent", npmPackage)
	var errs bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("its registry is out of reach: %w: %s", err, &errs)
	}
	return os.ReadFile(filepath.Join(dir, strings.TrimSpace(string(out))))
})

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

func fromTarball(t *testing.T, tarball []byte, name string) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(tarball))
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
