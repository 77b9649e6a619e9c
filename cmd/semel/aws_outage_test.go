//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// This file has the services failing for a while, and more messages at once than anybody waits for.

// ofQueues are the operations on SQS; all others are DynamoDB's.
func ofQueues(operation string) bool {
	return strings.Contains(operation, "Message") || strings.Contains(operation, "Queue")
}

// TestFM34 lets every operation on DynamoDB fail for a while. Workers stop to receive; what they hold is tried again when
// the table is back. One failed attempt would be a dead letter.
func TestFM34_WithoutTheTableReceivesPauseAndNoAttemptIsSpent(t *testing.T) {
	c := newCloud(t, 1000)
	var workers []*awsWorker
	var journals []string
	for i := range 2 {
		name := fmt.Sprintf("w%d", i)
		journals = append(journals, filepath.Join(filepath.Dir(c.ledger), name+".jsonl"))
		workers = append(workers, c.start(name, transactional, "--max-attempts", "1", "--visibility", "20s", "--events", journals[i]))
	}
	sent := 0
	send := func(n int) {
		c.send(orders(sent + n)[sent:]...)
		sent += n
	}
	send(4)
	c.until("the first effects", func() bool { return len(c.table()) == sent })
	c.until("both workers to be there", func() bool { // one that starts without its table ends at once
		for _, path := range journals {
			if _, err := os.Stat(path); err != nil {
				return false
			}
		}
		return true
	})
	var slow []string // they run when the table goes away, and end while it is not there
	for i := range 3 {
		slow = append(slow, fmt.Sprintf(`{"id":"slow-%d","sleep":2}`, i))
	}
	c.send(slow...)
	c.until("all to be claimed", func() bool { return len(c.records()) >= sent+len(slow) })
	c.fail(func(operation, _ string) bool { return !ofQueues(operation) })
	c.until("both workers to pause", func() bool {
		if visible, _, _ := c.sqs.Count(queue); visible == 0 {
			send(1) // whoever takes it finds that there is no table
		}
		return tell(journals, "paused")
	})
	c.until("the end of the last polls", func() bool { return c.underWay("ReceiveMessage") == 0 })
	polls, early, done := c.called("ReceiveMessage"), sent, len(c.table())
	send(5)
	time.Sleep(3 * time.Second) // whoever still polled would have them by then, and the slow ones are at their end
	for _, m := range c.sqs.Messages(queue) {
		for _, late := range orders(sent)[early:] {
			if m.Body == late && m.Receives > 0 {
				c.Errorf("%s was received %d times while there was no table", m.Body, m.Receives)
			}
		}
	}
	if n := c.called("ReceiveMessage"); n != polls {
		c.Errorf("%d polls while there was no table", n-polls)
	}
	if n := len(c.table()); n != done {
		c.Errorf("%d effects while there was no table", n-done)
	}
	c.fail(nil)
	c.until("an empty queue", c.empty)
	c.drain(workers...)
	c.once(c.table(), append(keys(sent), "slow-0", "slow-1", "slow-2")...)
	if deadLetters := c.reasons(); len(deadLetters) > 0 {
		c.Errorf("dead letters %q", deadLetters)
	}
	for _, item := range c.records() {
		if n, ok := item["failures"]["N"]; ok && n != "0" {
			c.Errorf("an attempt was spent: %v", item)
		}
	}
	if !tell(journals, "resumed") {
		c.Error("a worker did not say that it goes on")
	}
}

// tell reports that every one of the events files has an event of a kind.
func tell(files []string, kind string) bool {
	for _, path := range files {
		if b, err := os.ReadFile(path); err != nil || !bytes.Contains(b, []byte(`"kind":"`+kind+`"`)) {
			return false
		}
	}
	return true
}

// TestS3_43_Burst is the fourth experiment: a thousand messages as fast as they can be sent.
func TestS3_43_ABurstOfAThousand(t *testing.T) {
	c := newCloud(t, 1000)
	c.command("send", "--queue", "sqs://"+queue+"?endpoint="+c.url, "--n", "1000", "--rate", "0", "--seed", "43")
	var ids []string
	for _, m := range c.sqs.Messages(queue) {
		id, _, _ := strings.Cut(strings.TrimPrefix(m.Body, `{"id":"`), `"`)
		ids = append(ids, id)
	}
	if len(ids) != 1000 {
		c.Fatalf("%d messages were sent", len(ids))
	}
	got := c.work(2, transactional, nil)
	c.once(c.table(), ids...)
	if n := len(c.sqs.Messages(dlq)); n > 0 || got.deaths > 0 {
		c.Errorf("%d dead letters, %d deaths", n, got.deaths)
	}
	t.Logf("%d runs for 1000 effects, %d duplicates skipped", got.msgs["start"], got.msgs["duplicate_skipped"])
}

// command runs a command of semel to its end, which has to be a good one.
func (c *cloud) command(args ...string) {
	c.Helper()
	self, err := os.Executable()
	c.check(err)
	cmd := exec.Command(self, args...)
	cmd.Args[0], cmd.Dir, cmd.Env = "semel", filepath.Dir(c.ledger), c.environ("command")
	if out, err := cmd.CombinedOutput(); err != nil {
		c.Fatalf("semel %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// reasons are the reasons of the dead letters, by the body of their message.
func (c *cloud) reasons() map[string]string {
	c.Helper()
	out := map[string]string{}
	for _, m := range c.sqs.Messages(dlq) {
		var l struct {
			Reason string `json:"reason"`
		}
		_ = json.Unmarshal([]byte(m.Attributes["semel-dead-letter"]), &l) // a message that SQS moved has none
		out[m.Body] = l.Reason
	}
	return out
}

// environ is the environment of a process, without anything of this machine.
func (c *cloud) environ(name string) []string {
	home := filepath.Dir(c.ledger)
	return []string{
		"AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel", "AWS_REGION=" + awstest.Region, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_SDK_UA_APP_ID=" + name, "HOME=" + home, "TMPDIR=" + home,
	}
}
