package worker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/semel-dev/semel"
)

// The test binary is also the guard, and a worker to be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case GuardArg:
			if err := ServeGuard(os.Stdin, os.Stdout); err != nil {
				os.Exit(1)
			}
			os.Exit(0)
		case "pipe":
			pipeChild(os.Args[2:])
		case "victim":
			victim(os.Args[2], os.Args[3])
		}
	}
	os.Exit(m.Run())
}

// victim runs one handler until it is killed: of a program with or without a guard, or one that keeps running.
func victim(mode, script string) {
	e := &Exec{Argv: Shell(script), Keep: 100, KillGrace: time.Second, Log: slog.New(slog.DiscardHandler)}
	if mode != "alone" {
		g, err := StartGuard(os.Args[0], GuardArg)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		e.Guard = g
	}
	if mode == "pipe" {
		p := &Pipe{Argv: e.Argv, Processes: 1, InFlight: 1, KillGrace: e.KillGrace, Look: time.Minute, Log: e.Log, Guard: e.Guard}
		p.Start()
		select {}
	}
	_, _, err := e.Run(context.Background(), &semel.Attempt{})
	fmt.Println("ended", err)
	os.Exit(0)
}
