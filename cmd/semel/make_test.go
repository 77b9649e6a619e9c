package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestS3_52_MakeForwardsArguments: the targets of the demonstration are there, and hand their ARGS on.
func TestS3_52_MakeForwardsArguments(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("no make")
	}
	const args = "--count 10 --batch-size 5"
	for target, want := range map[string]string{
		"scenario-happy": "bin/semel lab run happy " + args, "scenario-partial-batch": "bin/semel lab run partial-batch " + args,
		"scenarios": "bin/semel lab run --all " + args, "scenarios-fast": "bin/semel lab run --all --fast " + args,
		"scenarios-slow": "bin/semel lab run --all --slow " + args, "validate": "bin/semel lab validate " + args,
		"preflight": "bin/semel lab validate " + args, "infra-up": "bin/semel lab up --env .env --worker=false " + args,
		"infra-down": "bin/semel lab down", "load-test": "bin/semel bench " + args,
	} {
		out, err := exec.Command("make", "-C", "../..", "-n", target, "ARGS="+args).CombinedOutput()
		if err != nil || !strings.Contains(string(out), want+"\n") {
			t.Errorf("make %s: %v\n%s, want %s", target, err, out, want)
		}
	}
}
