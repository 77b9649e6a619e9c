package ops

import (
	"fmt"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// CLI makes semel commands that can be pasted into a shell. A nil CLI makes none.
type CLI struct {
	// Store and Queue are URLs quoted for a shell, as [words.Quote] does. A variable stands for a URL with a password.
	Store, Queue string
	// Own: the store is the queue's database, so --queue names both.
	Own bool
	// Consumer is passed as --consumer; "": the URL's queue implies it.
	Consumer string
}

// onKey returns a command on the record of a key.
func (c *CLI) onKey(r *driver.Record, verb string, flags ...string) []string {
	if c == nil {
		return nil
	}
	if c.Store != "" {
		flags = append(flags, "--store", c.Store)
	}
	if !c.Own && c.Queue != "" {
		flags = append(flags, "--queue", c.Queue)
	}
	if c.Consumer != "" {
		flags = append(flags, "--consumer", words.Quote(c.Consumer))
	}
	if r.Key.Tenant != "" {
		flags = append(flags, "--tenant", words.Quote(r.Key.Tenant))
	}
	joined := strings.Join(flags, " ")
	if strings.HasPrefix(r.Key.Raw, "-") {
		return []string{fmt.Sprintf("semel records %s %s -- %s", verb, joined, words.Quote(r.Key.Raw))}
	}
	return []string{fmt.Sprintf("semel records %s %s %s", verb, words.Quote(r.Key.Raw), joined)}
}

// resolutions returns the commands that resolve an UNCERTAIN key.
func (c *CLI) resolutions(r *driver.Record) (out []string) {
	for _, as := range []string{"completed", "retry", "failed"} {
		out = append(out, c.onKey(r, "resolve", "--as", as)...)
	}
	return out
}

// onDeadLetter returns the commands on the dead letter of a FAILED key.
func (c *CLI) onDeadLetter(r *driver.Record) (out []string) {
	if c == nil {
		return nil
	}
	id := driver.DeadLetterID(driver.DeadLetterFailed, r.Key, r.Token, "")
	for _, verb := range []string{"show", "redrive", "discard"} {
		out = append(out, c.DeadLetters(verb, id))
	}
	return out
}

// DeadLetters returns a command on the dead letters of the queue: semel dlq, args, and the flags that name the queue.
func (c *CLI) DeadLetters(args ...string) string {
	line := words.Command(append([]string{"dlq"}, args...)...)
	switch {
	case c == nil || c.Queue == "":
	case c.Own || c.Store == "":
		line += " --queue " + c.Queue
	default:
		line += " --queue " + c.Queue + " --store " + c.Store
	}
	return line
}

func (c *CLI) queueStats() []string {
	if c == nil {
		return nil
	}
	return []string{"semel queue stats --queue " + c.Queue}
}
