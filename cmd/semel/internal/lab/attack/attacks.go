package attack

import "time"

// attack is one bad thing that happens to a handler.
type attack struct {
	name, title string
	// did describes the fault, for the report. endpoint are both for a handler that is an endpoint, where they differ.
	did      string
	endpoint words
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

// words are a title and what was done.
type words struct{ title, did string }

// words are those for a kind of handler.
func (a attack) words(http bool) words {
	if http && a.endpoint.title != "" {
		return a.endpoint
	}
	return words{a.title, a.did}
}

func (a attack) messages() int { return max(a.keys, 1) }

// mostEffects is for how many effects of a handler an attack is repeated.
const mostEffects = 3

// plain is the attack that is none: what all others are compared with.
const plain = "normal"

// attacks are all of them, in their order.
var attacks = []attack{
	{
		name: plain, title: "nothing goes wrong", keys: 2, script: undisturbed,
		did: "two messages, each delivered once",
	},
	{
		name: "neighbours", title: "other messages at the same time", keys: 5, script: undisturbed,
		did: "five messages with different keys at once",
	},
	{
		name: "redelivery", title: "the broker delivers it again", script: redelivered,
		did: "the same message again, under its own id, after it was done",
	},
	{
		name: "producer-retry", title: "the producer sends it again", script: resent,
		did: "the same message again, under another message id, after it was done",
	},
	{
		name: "concurrent", title: "two copies at once, two workers", script: concurrent,
		did: "two copies of the message, in the queue at once, and two workers",
	},
	{
		name: "kill-before", title: "the handler is killed before it begins", script: killBefore, stops: true, faulty: true,
		did:      "SIGKILL to the handler before its first instruction",
		endpoint: words{"the request is lost", "the connection broke before the handler had the request"},
	},
	{
		name: "kill-middle", title: "the handler is killed in the middle", script: killMiddle, service: true, program: true,
		each:   true,
		faulty: true, did: "SIGKILL to the handler's process group when its request was under way and not applied",
	},
	{
		name: "kill-after", title: "the handler is killed right after its effect", script: killAfter, stops: true, each: true,
		faulty:   true,
		did:      "SIGKILL to the handler's process group right after its effect, before its response",
		endpoint: words{"the handler's response is lost", "the connection broke when the handler had responded"},
	},
	{
		name: "kill-anytime", title: "the handler is killed at any moment", script: killAnytime, keys: 3, program: true,
		did: "SIGKILL to the process groups of three runs, each at a moment that the seed drew",
	},
	{
		name: "worker-killed", title: "the worker is killed after the effect", script: workerKilled, takeover: true, stops: true,
		faulty: true,
		did:    "SIGKILL to the worker when the effect was there and nothing was recorded; another worker took over",
	},
	{
		name: "two-at-once", title: "the worker stands still, another takes over", script: twoAtOnce, takeover: true, stops: true,
		faulty: true,
		did: "the worker stood still past its lease while the handler ran; another ran the handler to its end; then the first " +
			"went on",
	},
	{
		name: "deploy", title: "the worker is asked to stop", script: deployed, service: true, first: true, faulty: true,
		did: "SIGTERM to the worker, and after its grace to the handler, while the handler waited for a response",
	},
	{
		name: "slow", title: "the response takes longer than --timeout", script: slow, service: true, faulty: true,
		did: "the effect was applied, its response did not arrive before --timeout",
	},
	{
		name: "response-lost", title: "the effect's response is lost", script: faultWith(fault{cut: true}), service: true, each: true,
		faulty: true,
		did:    "the effect was applied, the connection broke before the response",
	},
	{
		name: "error-after", title: "500, and yet it was applied", script: faultWith(fault{status: 500}), service: true,
		faulty: true,
		did:    "the effect was applied, the response was 500",
	},
	{
		name: "error-before", title: "500, and nothing was applied", script: faultWith(fault{status: 500, skip: true}),
		service: true, each: true,
		faulty: true, did: "the response was 500 once, nothing was applied",
	},
	{
		name: "throttled", title: "429, and nothing was applied", script: faultWith(fault{status: 429, skip: true}), service: true,
		first: true, faulty: true,
		did: "the response was 429 with Retry-After once, nothing was applied",
	},
	{
		name: "unreachable", title: "the service cannot be reached", script: faultWith(fault{cut: true, skip: true}),
		service: true, first: true, faulty: true,
		did: "the connection broke once before anything was applied",
	},
	{
		name: "duplicate-refused", title: "the service refuses repeats", script: refused, service: true, faulty: true,
		did: "the effect was applied and its response lost; repeats with its Idempotency-Key got 409",
	},
	{
		name: "poison", title: "a message that cannot be handled", script: poisoned,
		did: "a message with a key and a broken body",
	},
}

func find(name string) (attack, bool) {
	for _, a := range attacks {
		if a.name == name {
			return a, true
		}
	}
	return attack{}, false
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
		out = append(out, Info{a.name, a.title, a.did})
	}
	return out
}

// minTimeout is the shortest --timeout of the attack that runs into it.
const minTimeout = 2 * time.Second
