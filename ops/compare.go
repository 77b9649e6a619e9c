package ops

import (
	"encoding/hex"
	"fmt"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

// tally is what the journal has of one step of one record.
type tally struct {
	total, byKey int
	extra        int // effects beyond those that the key may have
	ranged       bool
	judged       bool
	last         int64
	epochs       int // epochs with an effect that was named by its effect key
}

func (t *tally) take(n *effectEntry) {
	n.known = true
	t.total += int(n.count)
	t.ranged, t.judged = t.ranged || n.ranged, t.judged || n.judged
	t.last = max(t.last, n.last)
	if n.count > 0 {
		t.epochs++
		t.extra += int(n.count) - 1
	}
	t.byKey += int(n.byKey)
}

// compare judges one step of a record.
func (a *Audit) compare(r *driver.Record, step string, dropped bool) error {
	t, versioned, err := a.count(r, step)
	if err != nil {
		return err
	}
	t.total += t.byKey
	// A key that was run again on purpose may have an effect for each time, a versioned one for each version.
	if spare := int(r.Epoch) + 1 - t.epochs; t.byKey > max(spare, 0) && !versioned {
		t.extra += t.byKey - max(spare, 0)
	}
	f := Finding{Step: step, State: r.State.String(), Effects: t.total, At: timeOf(t.last)}
	switch {
	case t.extra > 0 && t.ranged:
		a.DuplicateEffect += t.extra
		f.Kind, f.Detail = DuplicateEffect, fmt.Sprintf("%s, %d too many", words.Count(t.total, "effect"), t.extra)
		if r.Uncertainty > 0 {
			f.Detail += "; the record has " + words.Count(r.Uncertainty, "moment of doubt", "moments of doubt") + " (semel records explain)"
		}
		if err := a.find(f, r.Key); err != nil {
			return err
		}
	case t.total == 0 && r.State == driver.Completed && !dropped:
		return a.missing(r, f)
	}
	if t.total == 0 || !t.judged {
		return nil
	}
	return a.unfinished(r, f, dropped)
}

// count gathers the effects of one step: those of every epoch, and of the versions that the record knows.
func (a *Audit) count(r *driver.Record, step string) (t tally, versioned bool, err error) {
	w := &r.Watermark
	versioned = w.Running != "" || w.Applied != ""
	versions := []driver.Version{""}
	for _, v := range []driver.Version{w.Applied, w.Running} {
		if v != "" && v != versions[len(versions)-1] {
			versions = append(versions, v)
		}
	}
	own := map[[32]byte]bool{}
	var base [32]byte
	for epoch := range r.Epoch + 1 {
		for _, v := range versions {
			id := effectKeyOf(driver.Hold{Key: r.Key, Epoch: epoch, Version: v}, step)
			if epoch == 0 && v == "" {
				base = id
			}
			own[id] = true
			if i, ok := a.byID[id]; ok {
				a.entries[i].key = r.Key.Raw
				t.take(&a.entries[i])
			}
		}
	}
	for _, i := range a.claims[base] {
		n := &a.entries[i]
		switch {
		case own[n.id]:
		case versioned: // of an older version, for all that can be known
			t.take(n)
		default:
			n.wrong = true
			if !n.judged {
				continue
			}
			err = a.find(Finding{
				Kind: MismatchedEffectKey, Step: step, EffectKey: hex.EncodeToString(n.id[:]), State: r.State.String(), At: timeOf(n.last),
				Detail: "the effect key is not one of this key: was it made from something else, or for another step or consumer?",
			}, r.Key)
			if err != nil {
				return t, versioned, err
			}
		}
	}
	return t, versioned, nil
}

func (a *Audit) missing(r *driver.Record, f Finding) error {
	if !a.settled(r.CompletedAt) {
		a.UnderWay++
		return nil
	}
	if !a.ranged(r.CompletedAt) {
		return nil
	}
	f.Kind, f.At, f.Detail = RecordWithoutEffect, timeOf(r.CompletedAt.UnixMicro()), "completed, and the journal has no effect"
	if reason := Reason(r.Reason); reason != "" {
		f.Detail += " (" + reason + ")"
	}
	return a.find(f, r.Key)
}

// unfinished judges a record that has an effect although it says that there is none, or does not know.
func (a *Audit) unfinished(r *driver.Record, f Finding, dropped bool) error {
	settled := a.settled(r.UpdatedAt) && (r.State != driver.Released || a.settled(r.RetryAt))
	switch {
	case dropped:
		f.Detail = "the handler dropped it on purpose, and yet it had its effect"
	case r.State == driver.FailedState:
		f.Detail = "it failed for good, and yet it had its effect: do not redrive it without looking"
	case r.State == driver.Uncertain:
		f.Detail = "it was unknown whether it had its effect: it had (semel records resolve --as completed)"
	case r.State == driver.Released:
		f.Detail = "it waits for a retry that does not come, and yet it had its effect"
	default:
		return nil
	}
	if !settled {
		a.UnderWay++
		return nil
	}
	f.Kind = EffectNotCompleted
	return a.find(f, r.Key)
}

// End judges the effects that no record knows.
func (a *Audit) End() error {
	for i := range a.entries {
		n := &a.entries[i]
		if n.known || n.wrong || !n.ranged {
			continue
		}
		f := Finding{
			Kind: EffectWithoutRecord, Step: a.Steps[n.step], Effects: int(n.count + n.byKey), At: timeOf(n.last),
			Detail: "no record: done without semel, under another key, or its record was purged after its retention",
		}
		if n.key == "" || n.count > 0 {
			f.EffectKey = hex.EncodeToString(n.id[:])
		}
		k := driver.Key{Raw: n.key, Tenant: n.tenant}
		if n.judged {
			if err := a.find(f, k); err != nil {
				return err
			}
		}
		if extra := f.Effects - 1; extra > 0 {
			a.DuplicateEffect += extra
			f.Kind, f.Detail = DuplicateEffect, fmt.Sprintf("%d effects, %d too many, and no record", f.Effects, extra)
			if err := a.find(f, k); err != nil {
				return err
			}
		}
	}
	return nil
}
