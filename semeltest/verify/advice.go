package verify

import (
	"cmp"
	"fmt"
	"strings"
)

// Handles is what kind of handler hints are written for.
type Handles uint8

// The kinds of handlers.
const (
	// GoHandler is a function of a program that imports semel.
	GoHandler Handles = iota
	// ProgramHandler is a program that semel work starts for each message.
	ProgramHandler
	// EndpointHandler is a URL that semel work sends each message to.
	EndpointHandler
	// PipeHandler is a program that keeps running, and takes messages as lines of JSON.
	PipeHandler
)

// advice is a hint, for each kind of handler; "" = as for a program, or else for a function. {step} stands for the name of an effect, {header}
// for the header that idempotency keys are sent in.
type advice [PipeHandler + 1]string

const sameAlways = ": it is the same in every attempt (nothing of the attempt, the message id, the time or chance may go " +
	"into it; several effects: a name for each, docs/worker.md). Where the service takes no such key: " +
	"--takeover probe --probe CMD, or --takeover once"

const ownKeys = `. In Go that is a.EffectKey("{step}/1"); docs/worker.md has other languages`

var (
	hintNoKey = advice{
		`req.Header.Set("{header}", a.EffectKey("{step}"))`,
		"send SEMEL_EFFECT_KEY as the header {header}" + sameAlways,
		"pass the request's Idempotency-Key on, as the header {header}" + sameAlways,
		"send the message's effect_key as the header {header}" + sameAlways,
	}
	hintRecorded = advice{ // an effect that is neither a request nor SQL; of a program, a line of its journal
		`a.EffectKey("{step}") as its idempotency key`,
		"make the effect key unique where it is written (SEMEL_EFFECT_KEY: INSERT … ON CONFLICT DO NOTHING), or have " +
			"semel commit the SQL with its record (--effects sql), or have it ask first (--takeover probe --probe CMD)",
		"make the effect key unique where it is written (the request's Idempotency-Key: INSERT … ON CONFLICT DO NOTHING), " +
			"or have it asked first (--takeover probe --probe-http URL)",
		"make the message's effect_key unique where it is written (INSERT … ON CONFLICT DO NOTHING), or have semel commit the " +
			"SQL with its record (--effects sql), or have it ask first (--takeover probe --probe CMD)",
	}
	hintCommit    = advice{"semel.InTx with *semel.Statements, so that it commits with the record"}
	hintStatement = advice{"queue it: semel.InTx(func(ctx, tx *semel.Statements, a) error { tx.Exec(…) }); if it changes " +
		"nothing when it is repeated, give Options.State, which then judges"}
	hintEmitted = advice{
		"take the key from what the message says, not from when or how it came: key.FromJSON(\"/order_id\")",
	}
	hintFollowsID = advice{
		"choose a key that the producer repeats: key.FromJSON(\"/order_id\")",
		"choose a key that the producer repeats, as --key json:/order_id, or have the producer send the header idempotency-key",
	}
	hintUnstable = advice{
		`derive it from the message's key: a.EffectKey("{step}") is the same in every attempt`,
		"derive the key from SEMEL_EFFECT_KEY alone" + sameAlways,
		"derive the key from the request's Idempotency-Key alone" + sameAlways,
		"derive the key from the message's effect_key alone" + sameAlways,
	}
	hintContent = advice{"make what is sent of the message alone: no time, no random id, no attempt number"}
	hintShared  = advice{
		`use one key for each step: a.EffectKey("{step}"); in a loop with the number of the item in the name`,
		`give each effect a name, and a key of its own: key=$(printf %s "$SEMEL_EFFECT_KEY/{step}/1" | sha256sum | ` +
			`cut -c1-64), with {step}/2 for the next` + ownKeys,
		"give each effect a name, and a key of its own: the SHA-256, in hex, of the request's Idempotency-Key followed by " +
			"/{step}/1, with {step}/2 for the next" + ownKeys,
		"give each effect a name, and a key of its own: the SHA-256, in hex, of the message's effect_key followed by /{step}/1, " +
			"with {step}/2 for the next (effect_key_of in Python, effectKeyOf in Node.js)",
	}
	hintConstant = advice{
		`derive it from the message's key: a.EffectKey("{step}")`,
		"derive the key from the message: SEMEL_EFFECT_KEY is another one for each message",
		"derive the key from the message: the request's Idempotency-Key is another one for each message",
		"derive the key from the message: effect_key is another one for each message, also in a process that keeps running",
	}
	hintSwallowed = advice{
		"return the error: the run is repeated, and what has a key is not done twice",
		"check the response (curl --fail-with-body, raise_for_status()): exit 75 when nothing was applied, 1 when the " +
			"outcome is unknown",
		"check the response: 503 when nothing was applied, 500 when the outcome is unknown",
		"wait for the response, and check it (raise_for_status(), response.ok): the outcome is later when nothing was applied, " +
			"retry when it is unknown",
	}
	hintStopped = advice{
		"when ctx ends before the effect is confirmed, return an error",
		"when it is stopped before its effect is confirmed it must not exit 0: let SIGTERM end it, or exit 75 (nothing was " +
			"applied)",
		"when it is stopped before its effect is confirmed it must not return 2xx",
		"when a message is cancelled before its effect is confirmed, its outcome must not be done",
	}
	hintDropped = advice{
		"drop a message only if nobody needs its effect",
		"exit 75 when nothing was applied, and 1 when the outcome is unknown; 99 only for messages that can be dropped",
		"503 when nothing was applied, 500 when the outcome is unknown; drop only what nobody needs",
		"later when nothing was applied, retry when the outcome is unknown; drop only what nobody needs",
	}
	hintMarked = advice{
		"mark nothing as done before it is: leave that to semel's record, or use package steps",
		"mark nothing as done before it is: leave that to semel's record, which is written after the run",
	}
	hintDuplicate = advice{"let semel's record decide what is done"}
	hintPoison    = advice{
		"return semel.Permanent(err) when a message cannot be handled: it becomes a dead letter",
		"exit 65 when a message cannot be handled: it becomes a dead letter, with the last line of stderr as its reason",
		"return 400 or 422 when a message cannot be handled: it becomes a dead letter, with the body as its reason",
		"the outcome is dead when a message cannot be handled: it becomes a dead letter, with the reason",
	}
	hintFails = advice{
		"give a sample message, and fake servers, with which the handler succeeds",
		"give it a message that it takes (--body FILE with {key}, --header), and what it needs (--env NAME=VALUE, {url} is " +
			"the service)",
		"give it a message that it takes (--body FILE with {key}, --header)",
	}
	hintHangs = advice{
		"give every call a timeout, pass ctx to it, and return when ctx ends; or raise Options.Limit",
		"give it more time (--timeout 1m), or find out what it waits for",
	}
	hintNothing = advice{
		"give the handler Process.Client or Transport, Process.DB or Connect, or wrap what it does in Process.Effect",
		"have it POST its effects to the URL in ATTACK_URL, or give your own variable: --env PAYMENTS_URL={url}; or count " +
			"what it writes: --effects FILE|URL. Without that only its runs can be counted",
		"start it with the URL of the service (--listen 127.0.0.1:9099 makes it a fixed one), or --effects FILE|URL",
	}
	hintRepeatable = advice{"make what it does depend on the message alone"}
)

// hint is an advice in words, about an effect.
func (j *Judge) hint(a advice, effect string) string {
	text := cmp.Or(a[j.Handles], a[min(j.Handles, ProgramHandler)], a[GoHandler])
	return strings.NewReplacer("{step}", step(effect), "{header}", j.header()).Replace(text)
}

// header is the header that idempotency keys are sent in.
func (j *Judge) header() string { return cmp.Or(j.KeyHeader, "Idempotency-Key") }

// keyHint returns how to give an effect a key.
func (j *Judge) keyHint(kind effectKind, name string) string {
	switch kind {
	case request:
		return j.hint(hintNoKey, name)
	case statement, commit:
		return j.hint(hintCommit, name)
	}
	return j.hint(hintRecorded, name)
}

// step is a name for the step that an effect is: the last word of its name or path.
func step(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(" /{}", r) })
	for i := len(words) - 1; i >= 0; i-- {
		if words[i] != "key" && words[i] != "id" {
			return words[i]
		}
	}
	return name
}

func short(key string) string {
	if len(key) > 12 {
		return fmt.Sprintf("%.12q…", key)
	}
	return fmt.Sprintf("%q", key)
}
