package ops

import (
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

// Records returns a command on the records of the store: semel records, args, and the flags that name the place.
func (c *CLI) Records(args ...string) string {
	return words.Command(append([]string{"records"}, args...)...) + c.flags("store", "queue", "consumer")
}

// DeadLetters returns a command on the dead letters of the queue: semel dlq, args, and the flags that name the place.
func (c *CLI) DeadLetters(args ...string) string {
	return words.Command(append([]string{"dlq"}, args...)...) + c.flags("queue", "store", "consumer")
}

// flags name the place for a command that has these flags. One URL is enough if the store is the queue's database.
func (c *CLI) flags(names ...string) (line string) {
	if c == nil {
		return ""
	}
	values := map[string]string{"store": c.Store, "queue": c.Queue}
	if c.Own {
		values = map[string]string{names[0]: values[names[0]]}
	}
	if c.Consumer != "" {
		values["consumer"] = words.Quote(c.Consumer)
	}
	for _, name := range names {
		if values[name] != "" {
			line += " --" + name + " " + values[name]
		}
	}
	return line
}

// onKey returns a command on the record of a key.
func (c *CLI) onKey(k driver.Key, verb string, flags ...string) string {
	line := c.flags("store", "queue", "consumer")
	if len(flags) > 0 {
		line = " " + strings.Join(flags, " ") + line
	}
	if k.Tenant != "" {
		line += " --tenant " + words.Quote(k.Tenant)
	}
	if strings.HasPrefix(k.Raw, "-") {
		return words.Command("records", verb) + line + " -- " + words.Quote(k.Raw)
	}
	return words.Command("records", verb, k.Raw) + line
}

// resolutions returns the commands that resolve an UNCERTAIN key.
func (c *CLI) resolutions(k driver.Key) (out []string) {
	for _, as := range []string{"completed", "retry", "failed"} {
		out = append(out, c.onKey(k, "resolve", "--as", as))
	}
	return out
}

// onDeadLetter returns the commands on the dead letter of a FAILED key.
func (c *CLI) onDeadLetter(r *driver.Record) (out []string) {
	id := driver.DeadLetterID(driver.DeadLetterFailed, r.Key, r.Token, "")
	for _, verb := range []string{"show", "redrive", "discard"} {
		out = append(out, c.DeadLetters(verb, id))
	}
	return out
}
