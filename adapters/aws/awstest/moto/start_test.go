package moto

import (
	"os/exec"
	"strings"
	"testing"
)

// Two tests that start a moto at once can be given one port: the second must not take the first one's server for its own.
func TestAnotherMotoIsNotTakenForOnesOwn(t *testing.T) {
	url := Start(t)
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	bin, err := exec.LookPath("moto_server")
	if err != nil {
		t.Fatal(err)
	}
	if other, ok := start(t, sh, bin, url[strings.LastIndexByte(url, ':')+1:]); ok {
		t.Errorf("started a second server at %s, where there is one", other)
	}
}
