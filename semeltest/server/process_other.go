//go:build !unix

package server

import (
	"errors"
	"os/exec"
)

func killTree(int) error { return errors.ErrUnsupported }

func detach(*exec.Cmd, *owner) {}

func unprivileged() (*owner, error) {
	return nil, errors.New("throw-away servers need a Unix: give the tests a server in SEMEL_TEST_POSTGRES or " +
		"SEMEL_TEST_REDIS")
}
