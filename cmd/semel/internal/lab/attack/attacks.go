package attack

import (
	"time"

	"github.com/semel-dev/semel/semeltest/verify"
)

// attack is how a schedule is run with real processes.
type attack struct {
	verify.Kind
	// did describes the fault, for the report; endpoint the one of a handler that is an endpoint, where it differs.
	did, endpoint string
	// script runs it.
	script func(*trial) error
	// keys is how many keys there are; 0 = 1.
	keys int
	// takeover: it waits until another worker takes over.
	takeover bool
	// service: it needs a handler that calls the service. each: once for each of the handler's first effects.
	service, each bool
	// first: it strikes the first effect, not the last.
	first bool
	// program: it needs a handler that is a program. stops: it needs a system that can stop processes.
	program, stops bool
	// faulty: the fault has to strike for the attack to say anything.
	faulty bool
}

// mostEffects is for how many effects of a handler an attack is repeated.
const mostEffects = 3

// attacks are all of them, in their order. The first is the one that all others are compared with.
var attacks = []attack{
	{Kind: verify.Plain, keys: 2, script: undisturbed, did: "two messages, each delivered once"},
	{Kind: verify.Neighbours, keys: 5, script: undisturbed, did: "five messages with different keys at once"},
	{
		Kind: verify.Redelivery, script: redelivered,
		did: "the same message again, under its own id, after it was done",
	},
	{
		Kind: verify.DuplicateAfter, script: resent,
		did: "the same message again, under another message id, after it was done",
	},
	{
		Kind: verify.Concurrent, script: concurrent,
		did: "two copies of the message, in the queue at once, and two workers",
	},
	{
		Kind: verify.KillBefore, script: killBefore, stops: true, faulty: true,
		did:      "SIGKILL to the handler before its first instruction",
		endpoint: "the connection broke before the handler had the request",
	},
	{
		Kind: verify.KillMiddle, script: killMiddle, service: true, program: true, each: true, faulty: true,
		did: "SIGKILL to the handler's process group when its request was under way and not applied",
	},
	{
		Kind: verify.KillAfter, script: killAfter, stops: true, each: true, faulty: true,
		did:      "SIGKILL to the handler's process group right after its effect, before its response",
		endpoint: "the connection broke when the handler had responded",
	},
	{
		Kind: verify.KillAnytime, script: killAnytime, keys: 3, program: true,
		did: "SIGKILL to the process groups of three runs, each at a moment that the seed drew",
	},
	{
		Kind: verify.CrashAfter, script: workerKilled, takeover: true, stops: true, faulty: true,
		did: "SIGKILL to the worker when the effect was there and nothing was recorded; another worker took over",
	},
	{
		Kind: verify.Paused, script: twoAtOnce, takeover: true, stops: true, faulty: true,
		did: "the worker stood still past its lease while the handler ran; another ran the handler to its end; then the " +
			"first went on",
	},
	{
		Kind: verify.Deploy, script: deployed, service: true, first: true, faulty: true,
		did: "SIGTERM to the worker, and after its grace to the handler, while the handler waited for a response",
	},
	{
		Kind: verify.Slow, script: slow, service: true, faulty: true,
		did: "the effect was applied, its response did not arrive before --timeout",
	},
	{
		Kind: verify.ResponseLost, script: faultWith(fault{cut: true}), service: true, each: true, faulty: true,
		did: "the effect was applied, the connection broke before the response",
	},
	{
		Kind: verify.ErrorAfter, script: faultWith(fault{status: 500}), service: true, faulty: true,
		did: "the effect was applied, the response was 500",
	},
	{
		Kind: verify.ErrorBefore, script: faultWith(fault{status: 500, skip: true}), service: true, each: true, faulty: true,
		did: "the response was 500 once, nothing was applied",
	},
	{
		Kind: verify.Throttled, script: faultWith(fault{status: 429, skip: true}), service: true, first: true, faulty: true,
		did: "the response was 429 with Retry-After once, nothing was applied",
	},
	{
		Kind: verify.NotSent, script: faultWith(fault{cut: true, skip: true}), service: true, first: true, faulty: true,
		did: "the connection broke once before anything was applied",
	},
	{
		Kind: verify.DuplicateRefused, script: refused, service: true, faulty: true,
		did: "the effect was applied and its response lost; repeats with its Idempotency-Key got 409",
	},
	{Kind: verify.Poison, script: poisoned, did: "a message with a key and a broken body"},
}

// Info is one line of the list of attacks.
type Info struct {
	Name  string `json:"name"`
	Title string `json:"title"`
	Did   string `json:"did"`
}

// List lists the attacks in the order in which they are run.
func List() (out []Info) {
	for _, a := range attacks {
		out = append(out, Info{a.Name(), a.String(), a.did})
	}
	return out
}

// minTimeout is the shortest --timeout of the attack that runs into it.
const minTimeout = 2 * time.Second
