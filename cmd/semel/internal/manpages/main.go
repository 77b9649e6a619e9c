// Command manpages writes the man pages and the completions of semel into a folder, for releases.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/semel-dev/semel/cmd/semel/internal/cli"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: manpages DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

// write makes dir/man/*.1 and dir/completions.
func write(dir string) error {
	man, completions := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	if err := errors.Join(os.MkdirAll(man, 0o755), os.MkdirAll(completions, 0o755)); err != nil { //nolint:gosec // of an archive
		return err
	}
	root := cli.Command()
	undated(root)
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "SEMEL", Section: "1", Source: "semel", Manual: "semel"}, man); err != nil {
		return fmt.Errorf("write man pages: %w", err)
	}
	return errors.Join(
		root.GenBashCompletionFileV2(filepath.Join(completions, "semel.bash"), true),
		root.GenZshCompletionFile(filepath.Join(completions, "_semel")),
		root.GenFishCompletionFile(filepath.Join(completions, "semel.fish"), true),
	)
}

// undated takes the date out of the pages: two builds of one commit are the same.
func undated(c *cobra.Command) {
	c.DisableAutoGenTag = true
	for _, sub := range c.Commands() {
		undated(sub)
	}
}
