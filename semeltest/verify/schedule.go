package verify

// Kind is a bad schedule: what goes wrong, and when.
type Kind uint8

// The schedules. Those up to DuplicateTakesOver aim at one effect, the others at the message.
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
	kinds
)

var kindTexts = [kinds]string{
	Plain:               "nothing goes wrong",
	CrashAfter:          "the process dies right after it, another one takes over",
	CrashBefore:         "the process dies right before it, another one takes over",
	ResponseLost:        "it happens, and its response is lost",
	NotSent:             "it fails before it happens",
	ResponseLate:        "its response arrives when another process has taken over and finished",
	LeaseLost:           "the lease is lost right before it (ctx ends), another process finishes, then the run goes on",
	Paused:              "the process stands still right before it, another one takes over and finishes, then the run goes on",
	DuplicateMeanwhile:  "a duplicate with another message id comes right before it, to another process",
	DuplicateTakesOver:  "the process dies right after it, a duplicate with another message id takes over",
	CrashAtStart:        "the process dies before the handler is called",
	CrashBeforeComplete: "the process dies after the handler returned, before the record is completed",
	RunFails:            "the run fails after everything was done, and is repeated",
	CompletionLost:      "the response to the completion of the record is lost",
	CrashBeforeAck:      "the process dies after the record was completed, before the ack",
	DuplicateBefore:     "a duplicate with another message id comes first",
	DuplicateAfter:      "a duplicate with another message id comes later",
}

func (k Kind) String() string {
	if k < kinds {
		return kindTexts[k]
	}
	return "unknown"
}

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
	for k := CrashAtStart; k < kinds; k++ {
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
