package preflight

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// TestS3_53_WhatFailsIsNamed: a program that cannot be a worker fails that line, and what needs it is not tried.
func TestS3_53_WhatFailsIsNamed(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	lines, err := Run(context.Background(), Options{Command: []string{filepath.Join(tmp, "no-such-program")}})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		name, detail string
		ok           bool
	}{
		{Folder, "can be written", true}, {Loopback, "127.0.0.1", true}, {Place, "one SQLite file", true},
		{Worker, "no-such-program", false}, {Signals, "not tried: it needs worker", false},
	}
	for i, w := range want {
		if len(lines) != len(want) || lines[i].Name != w.name || lines[i].OK != w.ok || !strings.Contains(lines[i].Detail, w.detail) {
			t.Fatalf("line %d is not %+v in\n%+v", i, w, lines)
		}
	}
	if left, _ := filepath.Glob(tmp + "/*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestS3_53_NoFolderNoPlace(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	lines, err := Run(context.Background(), Options{})
	if err != nil || len(lines) != 5 || lines[0].OK || lines[0].Hint == "" || !lines[1].OK || lines[2].OK || lines[3].OK {
		t.Errorf("%+v, %v", lines, err)
	}
}

func TestS3_53_AnInterruptIsNoVerdict(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if lines, err := Run(ctx, Options{}); !errors.Is(err, context.Canceled) || len(lines) > 0 {
		t.Errorf("%+v, %v", lines, err)
	}
}
