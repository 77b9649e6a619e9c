//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/semeltest/server"
)

// TestScriptsRedis runs testdata/redis. In each script REDIS is the URL of the shared server with a prefix of the script's own,
// whose keys are removed at the end, Q the URL of the queue orders there, and SERVER host and port. Where no server can be had
// the test is left out.
func TestScriptsRedis(t *testing.T) {
	shared := server.Shared(t, "redis")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/redis", Cmds: commands(), RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			name := e.WorkDir[strings.LastIndexByte(e.WorkDir, '/')+1:]
			url := fmt.Sprintf("%s?prefix=script-%d-%s", shared, os.Getpid(), name)
			e.Setenv("REDIS", url)
			e.Setenv("Q", url+"&queue=orders")
			e.Defer(func() {
				if err := removeRedis(url); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			})
			return nil
		},
	})
}

// removeRedis removes the keys with the prefix of a URL.
func removeRedis(url string) (err error) {
	prefix, err := open.RedisPrefix(url)
	if err != nil {
		return err
	}
	c, err := open.Redis("store", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	keys, err := c.Keys(context.Background(), "{"+prefix+"*").Result()
	if err == nil && len(keys) > 0 {
		err = c.Del(context.Background(), keys...).Err()
	}
	return err
}
