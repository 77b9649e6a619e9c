package verify

// Kind is a bad schedule: what goes wrong, and when.
type Kind uint8

// The schedules of [Run]. Those up to DuplicateTakesOver aim at one effect, the others at the message.
const (
	// Plain: nothing goes wrong. It runs three times, to see whether the handler does the same every time.
	Plain Kind = iota
	// CrashAfter: the process dies right after the effect, and another one takes over.
	CrashAfter
	// CrashBefore: it dies right before it.
	CrashBefore
	// ResponseLost: the effect happens, and the handler sees an error.
	ResponseLost
	// NotSent: the effect does not happen, and the handler sees an error.
	NotSent
	// ResponseLate: the effect happens, and its response arrives when another process has taken over and finished.
	ResponseLate
	// LeaseLost: right before the effect the lease is lost and the context ends; another process finishes first.
	LeaseLost
	// Paused: the same, but the process was stalled and does not know of it.
	Paused
	// DuplicateMeanwhile: right before the effect another process gets a duplicate with another message id.
	DuplicateMeanwhile
	// DuplicateTakesOver: the process dies right after the effect, and the duplicate comes before the redelivery.
	DuplicateTakesOver

	// CrashAtStart: the process dies when it has claimed the key.
	CrashAtStart
	// CrashBeforeComplete: it dies when the handler has returned.
	CrashBeforeComplete
	// RunFails: the run fails when it has done everything, and is repeated.
	RunFails
	// CompletionLost: the completion is written, and its response is lost.
	CompletionLost
	// CrashBeforeAck: the process dies when the completion is written.
	CrashBeforeAck
	// DuplicateBefore: a duplicate with another message id comes first.
	DuplicateBefore
	// DuplicateAfter: it comes when everything is done.
	DuplicateAfter
	inProcess
)

// Schedules that need real processes: the handler is a program, or an HTTP endpoint, apart from its worker. [Run] leaves
// them out, semel lab attack runs them.
const (
	// Neighbours: other messages at the same time.
	Neighbours Kind = inProcess + iota
	// Redelivery: the broker delivers the same message again when it is done.
	Redelivery
	// Concurrent: two copies at once, for two workers.
	Concurrent
	// KillBefore: the handler is killed before it begins; its worker lives on.
	KillBefore
	// KillMiddle: it is killed while its effect is under way and has not happened.
	KillMiddle
	// KillAfter: it is killed right after its effect.
	KillAfter
	// KillAnytime: it is killed at moments that the seed draws.
	KillAnytime
	// Deploy: the worker is asked to stop while the effect is under way.
	Deploy
	// Slow: the effect's response takes longer than the handler may run.
	Slow
	// ErrorAfter: the effect happens, and the response is an error.
	ErrorAfter
	// ErrorBefore: the response is an error, and the effect does not happen.
	ErrorBefore
	// Throttled: the response is 429, and the effect does not happen.
	Throttled
	// DuplicateRefused: the response is lost, and repeats are refused.
	DuplicateRefused
	// Poison: a message that cannot be handled.
	Poison
	kinds
)

// schedules are their names on the command line and in JSON, and what happens.
var schedules = [kinds]struct{ name, text string }{
	Plain:        {"normal", "nothing goes wrong"},
	CrashAfter:   {"worker-killed", "the process dies right after the effect, another one takes over"},
	CrashBefore:  {"worker-killed-before", "the process dies right before the effect, another one takes over"},
	ResponseLost: {"response-lost", "the effect happens, and its response is lost"},
	NotSent:      {"unreachable", "the effect fails before it happens"},
	ResponseLate: {"response-late", "the effect's response arrives when another process has taken over and finished"},
	LeaseLost: {"lease-lost",
		"the lease is lost right before the effect (ctx ends), another process finishes, then the run goes on"},
	Paused: {"two-at-once",
		"the process stands still right before the effect, another one finishes, then the first goes on"},
	DuplicateMeanwhile: {"duplicate-meanwhile",
		"a duplicate with another message id comes right before the effect, to another process"},
	DuplicateTakesOver: {"duplicate-takes-over",
		"the process dies right after the effect, a duplicate with another message id takes over"},
	CrashAtStart:        {"crash-at-start", "the process dies before the handler is called"},
	CrashBeforeComplete: {"crash-before-complete", "the process dies after the handler returned, before the record is completed"},
	RunFails:            {"run-fails", "the run fails after everything was done, and is repeated"},
	CompletionLost:      {"completion-lost", "the response to the completion of the record is lost"},
	CrashBeforeAck:      {"crash-before-ack", "the process dies after the record was completed, before the ack"},
	DuplicateBefore:     {"duplicate-before", "a duplicate with another message id comes first"},
	DuplicateAfter:      {"producer-retry", "a duplicate with another message id comes later"},

	Neighbours:       {"neighbours", "other messages at the same time"},
	Redelivery:       {"redelivery", "the broker delivers it again"},
	Concurrent:       {"concurrent", "two copies at once, two workers"},
	KillBefore:       {"kill-before", "the handler is killed before it begins"},
	KillMiddle:       {"kill-middle", "the handler is killed in the middle"},
	KillAfter:        {"kill-after", "the handler is killed right after its effect"},
	KillAnytime:      {"kill-anytime", "the handler is killed at any moment"},
	Deploy:           {"deploy", "the worker is asked to stop"},
	Slow:             {"slow", "the response takes longer than the handler may run"},
	ErrorAfter:       {"error-after", "the response is an error, and yet the effect happened"},
	ErrorBefore:      {"error-before", "the response is an error, and the effect did not happen"},
	Throttled:        {"throttled", "the response is 429, and the effect did not happen"},
	DuplicateRefused: {"duplicate-refused", "the service refuses repeats"},
	Poison:           {"poison", "a message that cannot be handled"},
}

// String describes what happens.
func (k Kind) String() string {
	if k < kinds {
		return schedules[k].text
	}
	return "unknown"
}

// Name is its name on the command line and in JSON.
func (k Kind) Name() string { return schedules[k].name }

// MarshalText returns the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.Name()), nil }

// whole reports whether the fault aims at no effect.
func (k Kind) whole() bool { return k == Plain || k >= CrashAtStart }

// stalls reports whether the effect is held up until another process is done.
func (k Kind) stalls() bool {
	return k == ResponseLate || k == LeaseLost || k == Paused || k == DuplicateMeanwhile
}

// duplicates reports whether a second message with the same key is sent.
func (k Kind) duplicates() bool {
	return k == DuplicateMeanwhile || k == DuplicateTakesOver || k == DuplicateBefore || k == DuplicateAfter
}

// target is an effect: its name, and which of that name.
type target struct {
	name string
	nth  int
}

// fault is one schedule: what happens, and to which effect.
type fault struct {
	kind   Kind
	target target
	place  int  // of the effect in the plain run, from 0; -1 = none
	slow   bool // effects take a while, so that a handler that does not wait for them has returned
}

// plan is the list of schedules for a handler with these effects.
func plan(effects []Effect, how traits) []fault {
	var fs []fault
	for k := CrashAfter; k <= DuplicateTakesOver; k++ { // the simplest first: a finding shows the first that finds it
		for i := range effects {
			e := &effects[i]
			if !e.Queued && how.allows(k, e) { // what commits with the record has the completion's schedules
				fs = append(fs, fault{kind: k, target: target{e.Name, e.nth}, place: i})
			}
		}
	}
	for k := CrashAtStart; k < inProcess; k++ {
		if how.allows(k, nil) {
			fs = append(fs, fault{kind: k, place: -1})
		}
	}
	return fs
}

// traits rule schedules out.
type traits struct {
	around     bool // a middleware goes around the run
	open       bool // the run holds a transaction of the store: nobody can take over while it lives
	duplicated bool // a message with another id has the same key
}

func (t traits) allows(k Kind, e *Effect) bool {
	switch {
	case k.duplicates() && !t.duplicated:
		return false
	case k == RunFails, k == LeaseLost:
		if !t.around {
			return false
		}
	}
	if t.open && k.stalls() {
		return false
	}
	if e != nil && e.inTx {
		// Nothing has happened until the commit, which is an effect of its own.
		return k == NotSent || k == CrashAfter
	}
	return true
}
