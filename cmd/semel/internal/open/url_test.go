package open

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

func TestParse(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if err := os.WriteFile("real.db", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.db", "link.db"); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for raw, want := range map[string]Target{
		"sqlite:a.db?queue=orders":       {Scheme: "sqlite", Path: at("a.db"), Shown: "a.db", Queue: "orders"},
		"sqlite:./a.db":                  {Scheme: "sqlite", Path: at("a.db"), Shown: "./a.db"},
		"SQLite:sub/../a.db":             {Scheme: "sqlite", Path: at("a.db"), Shown: "sub/../a.db"},
		"sqlite://" + dir + "/a.db":      {Scheme: "sqlite", Path: at("a.db"), Shown: dir + "/a.db"},
		"sqlite:" + dir + "/a.db":        {Scheme: "sqlite", Path: at("a.db"), Shown: dir + "/a.db"},
		"sqlite:link.db":                 {Scheme: "sqlite", Path: at("real.db"), Shown: "link.db"},
		"sqlite:a%3Fb%23.db?queue=x%26y": {Scheme: "sqlite", Path: at("a?b#.db"), Shown: "a?b#.db", Queue: "x&y"},
		"memory://":                      {Scheme: "memory", Shown: "memory"},
		"memory:?queue=q":                {Scheme: "memory", Shown: "memory", Queue: "q"},
	} {
		got, err := Parse("queue", raw)
		got.kind, got.place = nil, ""
		if err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"", "a.db", "mysql://x", "sqlite:", "sqlite://a.db", "sqlite:a.db?queue=", "sqlite:a.db?queue=a&queue=b", "sqlite:a.db?q=a",
		"sqlite:a.db#f", "sqlite:dir/", "sqlite::memory:", "memory://host", "memory:///p", "sqlite:a.db?queue=%00", "sqlite:%00", "sqlite:%zz",
		"://", "sqlite:a.db?queue=%zz",
	} {
		got, err := Parse("queue", raw)
		if err == nil {
			t.Errorf("%q: %+v", raw, got)
		} else if output.As(err).Code != output.CodeUsage {
			t.Errorf("%q: %v is not of usage", raw, err)
		}
	}
}
