package explain

import (
	"fmt"
	"strings"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// Tool makes semel commands that can be pasted into a shell. A nil Tool makes none.
type Tool struct {
	// Store and Queue are URLs quoted for a shell, as [words.Quote] does. A variable stands for a URL with a password.
	Store, Queue string
	// Own: the store is the queue's database, so --queue names both.
	Own bool
	// Consumer is passed as --consumer; "": the URL's queue implies it.
	Consumer string
}

// onKey returns a command on the record of a key.
func (t *Tool) onKey(r *driver.Record, verb string, flags ...string) []string {
	if t == nil {
		return nil
	}
	if t.Store != "" {
		flags = append(flags, "--store", t.Store)
	}
	if !t.Own && t.Queue != "" {
		flags = append(flags, "--queue", t.Queue)
	}
	if t.Consumer != "" {
		flags = append(flags, "--consumer", words.Quote(t.Consumer))
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
func (t *Tool) resolutions(r *driver.Record) (out []string) {
	for _, as := range []string{"completed", "retry", "failed"} {
		out = append(out, t.onKey(r, "resolve", "--as", as)...)
	}
	return out
}

// onDeadLetter returns the commands on the dead letter of a FAILED key.
func (t *Tool) onDeadLetter(r *driver.Record) (out []string) {
	if t == nil {
		return nil
	}
	id := driver.DeadLetterID(driver.DeadLetterFailed, r.Key, r.Token, "")
	for _, verb := range []string{"show", "redrive", "discard"} {
		out = append(out, fmt.Sprintf("semel dlq %s %s %s", verb, id, t.ofQueue()))
	}
	return out
}

func (t *Tool) queueStats() []string {
	if t == nil {
		return nil
	}
	return []string{"semel queue stats --queue " + t.Queue}
}

// ofQueue returns the flags of a command on dead letters.
func (t *Tool) ofQueue() string {
	if t.Own || t.Store == "" {
		return "--queue " + t.Queue
	}
	return fmt.Sprintf("--queue %s --store %s", t.Queue, t.Store)
}
