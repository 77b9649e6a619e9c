package ops

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// FindingKind names what is wrong.
type FindingKind string

// The kinds of findings.
const (
	// OrphanClaim: a claim whose lease has been over for longer than the grace, and that nobody took over.
	OrphanClaim FindingKind = "orphan_claim"
	// EffectWithoutRecord: an effect of a key that has no record.
	EffectWithoutRecord FindingKind = "effect_without_record"
	// RecordWithoutEffect: a completed key without effect.
	RecordWithoutEffect FindingKind = "record_without_effect"
	// DuplicateEffect: more effects than the key may have.
	DuplicateEffect FindingKind = "duplicate_effect"
	// EffectNotCompleted: an effect of a key that is FAILED, UNCERTAIN, RELEASED, or that the handler dropped.
	EffectNotCompleted FindingKind = "effect_not_completed"
	// MismatchedEffectKey: the journal names a key together with an effect key that is not one of this key.
	MismatchedEffectKey FindingKind = "mismatched_effect_key"
)

// FindingKinds lists all of them, in the order of reports.
var FindingKinds = []FindingKind{
	DuplicateEffect, EffectWithoutRecord, RecordWithoutEffect, EffectNotCompleted, MismatchedEffectKey, OrphanClaim,
}

// Finding is one thing that does not fit.
type Finding struct {
	Kind      FindingKind `json:"kind"`
	Key       string      `json:"key,omitempty"`
	Tenant    string      `json:"tenant,omitempty"`
	Step      string      `json:"step,omitempty"`
	EffectKey string      `json:"effect_key,omitempty"`
	State     string      `json:"state,omitempty"`
	Effects   int         `json:"effects,omitempty"`
	At        *time.Time  `json:"at,omitempty"`
	Detail    string      `json:"detail"`
}

// AuditScope is what is compared.
type AuditScope struct {
	Consumer string
	// Tenant restricts the audit to one tenant; AllTenants: to none.
	Tenant     string
	AllTenants bool
	// Steps are the names of the handler's steps that have an effect each; none = one effect, under the empty name.
	Steps []string
	// Since and Until bound what is judged; zero = no bound. Effects and records outside still count as evidence: an effect
	// may be earlier than Since while its record was completed after it.
	Since, Until time.Time
	// Now is when the audit began, before the journal was read, and Grace how long before that runs may still be under
	// way, and the journal behind.
	Now   time.Time
	Grace time.Duration
}

// AuditReport counts what was compared and found.
type AuditReport struct {
	Effects         int                 `json:"effects"`
	EffectsOutside  int                 `json:"effects_outside"` // of the range, or too recent
	OtherConsumers  int                 `json:"effects_of_other_consumers"`
	Records         int                 `json:"records"`
	Completed       int                 `json:"completed"`
	Dropped         int                 `json:"dropped"`
	UnderWay        int                 `json:"under_way"` // claims, and records too recent to be judged
	Findings        map[FindingKind]int `json:"findings"`
	DuplicateEffect int                 `json:"semel_duplicate_effects_total"`
}

// Found is how many findings there are.
func (r *AuditReport) Found() (n int) {
	for _, c := range r.Findings {
		n += c
	}
	return n
}

// Audit compares: first every effect is added, then every record. Effects are read first because a record is claimed
// before its effect happens: whatever the journal holds has a record by then.
//
// It takes about half a kilobyte of memory for each distinct effect; records are not kept. A million of both took 15 s and
// 470 MB.
type Audit struct {
	AuditScope
	AuditReport
	// Emit is called with each finding.
	Emit func(Finding) error

	byID    map[[32]byte]int32
	entries []effectEntry
	// claims are the entries whose line names a key that the effect key is not derived from at first sight, by the
	// effect key that would be.
	claims map[[32]byte][]int32
}

// effectEntry is one distinct effect.
type effectEntry struct {
	id          [32]byte
	key, tenant string
	last        int64 // microseconds; 0 = not known
	count       int32 // lines that name the effect key
	byKey       int32 // lines that name the key alone
	step        int16
	ranged      bool // one of its lines is in the range
	judged      bool // and old enough to be judged
	known       bool // a record knows it
	wrong       bool // its key is not the one that it names: said already
}

// NewAudit begins an audit.
func NewAudit(s AuditScope, emit func(Finding) error) *Audit {
	if len(s.Steps) == 0 {
		s.Steps = []string{""}
	}
	a := &Audit{AuditScope: s, Emit: emit, byID: map[[32]byte]int32{}, claims: map[[32]byte][]int32{}}
	a.Findings = map[FindingKind]int{}
	for _, k := range FindingKinds {
		a.Findings[k] = 0
	}
	return a
}

// Add adds one line of the journal.
func (a *Audit) Add(e Effect) error {
	if e.Consumer != "" && e.Consumer != a.Consumer {
		a.OtherConsumers++
		return nil
	}
	if e.Tenant == "" {
		e.Tenant = a.Tenant
	}
	if !a.AllTenants && e.Tenant != a.Tenant {
		a.EffectsOutside++
		return nil
	}
	step, err := a.stepOf(e)
	if err != nil {
		return err
	}
	a.Effects++
	ranged := e.At.IsZero() || a.ranged(e.At)
	judged := ranged && (e.At.IsZero() || a.settled(e.At))
	if !judged {
		a.EffectsOutside++
	}
	base := [32]byte{}
	if e.Key != "" {
		base = effectKeyOf(driver.Hold{Key: driver.Key{Consumer: a.Consumer, Tenant: e.Tenant, Raw: e.Key}}, a.Steps[step])
	}
	id := base
	if e.EffectKey != nil {
		id = *e.EffectKey
	}
	i, ok := a.byID[id]
	if !ok {
		i = int32(len(a.entries))
		a.byID[id] = i
		a.entries = append(a.entries, effectEntry{id: id, tenant: e.Tenant, step: int16(step)})
	}
	if n := &a.entries[i]; n.key == "" && e.Key != "" {
		n.key = e.Key
		if id != base {
			a.claims[base] = append(a.claims[base], i)
		}
	}
	a.entries[i].add(e, ranged, judged)
	return nil
}

func (n *effectEntry) add(e Effect, ranged, judged bool) {
	if e.EffectKey != nil {
		n.count++
	} else {
		n.byKey++
	}
	n.ranged, n.judged = n.ranged || ranged, n.judged || judged
	if !e.At.IsZero() {
		n.last = max(n.last, e.At.UnixMicro())
	}
}

// stepOf is the index of the step that a line is of.
func (a *Audit) stepOf(e Effect) (int, error) {
	if e.Step == "" && len(a.Steps) == 1 || e.Step == "" && e.EffectKey != nil {
		return 0, nil
	}
	i := slices.Index(a.Steps, e.Step)
	switch {
	case i >= 0:
		return i, nil
	case e.Step == "":
		return 0, fmt.Errorf("an effect of key %q names no step, and there are several (--step %s)", words.Printable(e.Key, 80), strings.Join(a.Steps, ", "))
	}
	return 0, fmt.Errorf("an effect names step %q: add --step %s", words.Printable(e.Step, 80), words.Printable(e.Step, 80))
}

// ranged tells whether a time is in the range. What happened too often is judged as soon as it is: nothing that is under way can
// fix it. Everything else must also be settled.
func (a *Audit) ranged(at time.Time) bool {
	return (a.Since.IsZero() || !at.Before(a.Since)) && (a.Until.IsZero() || !at.After(a.Until))
}

func (a *Audit) settled(at time.Time) bool { return !at.After(a.Now.Add(-a.Grace)) }

func effectKeyOf(h driver.Hold, step string) [32]byte {
	b, err := hex.DecodeString(semel.EffectKey(h, step))
	if err != nil || len(b) != 32 {
		panic("an effect key is 64 hex digits")
	}
	return [32]byte(b)
}

// Record compares one record. Every record of the consumer has to be given, of whatever time.
func (a *Audit) Record(r driver.Record) error {
	if r.Key.Consumer != a.Consumer || !a.AllTenants && r.Key.Tenant != a.Tenant {
		return nil
	}
	a.Records++
	dropped := r.State == driver.Completed && strings.HasPrefix(r.Reason, "dropped: ")
	switch {
	case dropped:
		a.Dropped++
	case r.State == driver.Completed:
		a.Completed++
	}
	for _, step := range a.Steps {
		if err := a.compare(&r, step, dropped); err != nil {
			return err
		}
	}
	return a.claim(&r)
}

// claim looks for orphans.
func (a *Audit) claim(r *driver.Record) error {
	if r.State != driver.InProgress {
		return nil
	}
	if !a.settled(r.LeaseUntil) {
		a.UnderWay++
		return nil
	}
	if !a.Until.IsZero() && r.CreatedAt.After(a.Until) || r.LeaseUntil.Before(a.Since) {
		return nil
	}
	return a.find(Finding{
		Kind: OrphanClaim, State: r.State.String(), At: timeOf(r.LeaseUntil.UnixMicro()),
		Detail: fmt.Sprintf("claimed by attempt %d, its lease has ended, and no worker took it over: is its message still in the queue, and a "+
			"worker running?", r.Attempt),
	}, r.Key)
}

// find counts and passes on.
func (a *Audit) find(f Finding, k driver.Key) error {
	f.Key, f.Tenant = k.Raw, k.Tenant
	a.Findings[f.Kind]++
	return a.Emit(f)
}

func timeOf(micro int64) *time.Time {
	if micro == 0 {
		return nil
	}
	t := time.UnixMicro(micro).UTC()
	return &t
}
