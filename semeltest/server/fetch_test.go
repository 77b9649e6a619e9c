//go:build unix

package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFindNamesWhatIsMissing(t *testing.T) {
	t.Setenv("SEMEL_POSTGRES_BIN", "/nowhere")
	_, err := find(t.Context(), postgresPrograms)
	if err == nil || !strings.Contains(err.Error(), "SEMEL_POSTGRES_BIN is /nowhere") {
		t.Errorf("error %v", err)
	}
	t.Setenv("SEMEL_POSTGRES_BIN", "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv("SEMEL_SERVER_CACHE", t.TempDir())
	p := programs{service: "postgres", names: []string{"postgres"}, packages: postgresPackages, install: "install PostgreSQL 14 or newer"}
	_, err = find(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "install PostgreSQL 14 or newer") || !strings.Contains(err.Error(), "apt-get") {
		t.Errorf("error %v", err)
	}
}

func TestNewestVersionWins(t *testing.T) {
	root := t.TempDir()
	for _, v := range []string{"9", "16", "15"} {
		dir := filepath.Join(root, "usr/lib/postgresql", v, "bin")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "postgres"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := programs{names: []string{"postgres"}, dirs: postgresDirs}
	if dir := p.newest(root); !strings.HasSuffix(dir, "/16/bin") {
		t.Errorf("chose %s", dir)
	}
	names := []string{"postgresql-9", "postgresql-17", "postgresql-15", "postgresql-17-cron", "postgresql-common", "postgresql-"}
	if n := newestName(names, "postgresql-*"); n != "postgresql-17" {
		t.Errorf("chose %s", n)
	}
	if got := without([]string{"libpq5", "perl-base", "libllvm14", "libxml2"}); !slices.Equal(got, []string{"libpq5", "libxml2"}) {
		t.Errorf("kept %v", got)
	}
}

// TestFetch downloads a server's packages and runs it from the cache. It needs Debian or Ubuntu and their archive, so it
// runs only when it is asked for: SEMEL_TEST_FETCH=1.
func TestFetch(t *testing.T) {
	if os.Getenv("SEMEL_TEST_FETCH") == "" {
		t.Skip("set SEMEL_TEST_FETCH=1 to download about 25 MB of packages")
	}
	cache, err := os.MkdirTemp("", "semel-cache-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(cache)
	if err := os.Chmod(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SEMEL_SERVER_CACHE", cache)
	bins, err := postgresPrograms.fetched(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(bins.dir, cache) {
		t.Fatalf("programs in %s, want them in %s", bins.dir, cache)
	}
	again, err := postgresPrograms.fetched(t.Context())
	if err != nil || again != bins {
		t.Errorf("%+v, %v the second time", again, err)
	}
	s, err := makePostgres(t.Context(), bins, Options{}, initdb)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out, err := psql(t.Context(), bins, s.URL(), "SELECT sum(n) FROM generate_series(1, 10) n"); err != nil || out != "55" {
		t.Errorf("%q, %v", out, err)
	}
}
