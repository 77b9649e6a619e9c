// Command semel makes message handlers take effect exactly once: worker, producer, operator's tools and lab in one
// binary.
package main

import (
	"os"

	"github.com/semel-dev/semel/cmd/semel/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
