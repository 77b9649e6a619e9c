package attack

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// Options say which handler is attacked, and how. The zero value of everything but the handler is the default.
type Options struct {
	// Argv is a program; HTTP the URL of an endpoint. One of them.
	Argv []string
	HTTP string
	// Pipe: the program keeps running, and speaks the lines of docs/pipe.md.
	Pipe bool
	// Handler is the handler as the user wrote it, for the report.
	Handler string

	// Only are the names of the attacks; none = all.
	Only []string
	// Key is what semel work --key takes. Defaults to id.
	Key string
	// Body is the sample message, Headers its headers: {key} is replaced by a fresh key. Defaults to an order.
	Body    []byte
	Headers map[string]string
	// Journal is where effects are counted, in addition to the service.
	Journal Journal
	// Env is added to the handler's environment: NAME=VALUE, where {url} is the service's URL.
	Env []string
	// Listen is the service's address. Defaults to a free port of 127.0.0.1.
	Listen string
	// Ready is called with the service's URL when it listens, before the first attack. Defaults to nothing.
	Ready func(url string)
	// KeyHeader is the header in which the service expects idempotency keys. Defaults to Idempotency-Key.
	KeyHeader string
	// Seed decides what is drawn. Defaults to a drawn one.
	Seed uint64
	// Timeout is how long one run of the handler may take. Defaults to 10 s.
	Timeout time.Duration
	// Lease is the visibility of messages in attacks that wait for a takeover. Defaults to 2 s.
	Lease time.Duration
	// Work are further flags of semel work: --takeover, --probe, --probe-http, --retry.
	Work []string
	// Variables are added to the environment of all processes.
	Variables []string
}

// URLVariable is the variable with the URL of the service for a handler program.
const URLVariable = "ATTACK_URL"

// sample is the message where the user gives none.
const sample = `{"order_id":"{key}","action":"charge","amount":4200,"currency":"JPY"}`

func (o Options) withDefaults() (Options, error) {
	o.Key = cmp.Or(o.Key, "id")
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	o.KeyHeader = cmp.Or(o.KeyHeader, "Idempotency-Key")
	o.Seed = cmp.Or(o.Seed, 1+rand.Uint64N(100_000))
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	o.Lease = cmp.Or(o.Lease, 2*time.Second)
	if o.Body == nil {
		o.Body = []byte(sample)
	}
	for _, name := range o.Only {
		if !slices.ContainsFunc(attacks, func(a attack) bool { return a.Name() == name }) {
			return o, output.Usage("no attack is called %q", name).WithHint("semel lab attack --list shows them")
		}
	}
	return o, o.checkKey()
}

// checkKey refuses a sample whose key is the same in every message, or is none: no attack could tell them apart.
func (o Options) checkKey() error {
	if _, err := key.Parse(o.Key); err != nil {
		return output.Usage("--key %q: %w", o.Key, err)
	}
	if bytes.ContainsRune(o.Body, 0) {
		return output.Usage("--body: a sample is text")
	}
	one, err := o.rawKey(o.message("attack-key-1", "attack-key-1"))
	if err != nil {
		return output.Usage("--key %s finds no key in the sample message: %w", o.Key, err).
			WithHint("--body FILE with the fields of your messages, {key} where the key is; --header NAME={key}")
	}
	two, err := o.rawKey(o.message("attack-key-2", "attack-key-2"))
	if err != nil || one == two {
		return output.Usage("--key %s is %q in every sample message", o.Key, one).
			WithHint("write {key} in --body or --header where the key stands")
	}
	return nil
}

// message is the sample with a key in it, under a message id.
func (o Options) message(key, id string) driver.Message {
	m := driver.Message{ID: id, Headers: map[string]string{}}
	m.Body = bytes.ReplaceAll(o.Body, []byte("{key}"), []byte(key))
	if name, ok := strings.CutPrefix(o.Key, "header:"); ok {
		m.Headers[name] = key
	}
	for name, value := range o.Headers {
		m.Headers[name] = strings.ReplaceAll(value, "{key}", key)
	}
	return m
}

// poison is a message whose key is fine and whose body is not.
func (o Options) poison(key, id string) driver.Message {
	m := o.message(key, id)
	pointers, byContent := strings.CutPrefix(o.Key, "json:")
	var all map[string]json.RawMessage
	if !byContent || json.Unmarshal(m.Body, &all) != nil {
		m.Body = []byte(`{"poison": "` + key + `", `)
		return m
	}
	keep := map[string]json.RawMessage{}
	for p := range strings.SplitSeq(pointers, ",") {
		name, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		if v, ok := all[name]; ok {
			keep[name] = v
		}
	}
	if b, err := json.Marshal(keep); err == nil {
		m.Body = b
	}
	return m
}

// rawKey is the key that semel takes out of a message.
func (o Options) rawKey(m driver.Message) (string, error) {
	key, err := key.Parse(o.Key)
	if err != nil {
		return "", err
	}
	return key(&m)
}

// effectKey is what a handler is given for a key.
func effectKey(raw string) string {
	return semel.EffectKey(driver.Hold{Key: driver.Key{Consumer: queueName, Raw: raw}}, "")
}

const queueName = "attack"
