package longterm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/memory"
)

// This file plays processes with filters of their own, a sweep, and copies of messages that come before, at and long after
// the end of their records, in virtual time: a schedule out of a seed. Whatever can happen between two steps of a claim
// happens there. Then mistakes are planted, and each has to be found.

// mistake is one that can be planted.
type mistake string

const (
	none           mistake = "none"
	lookFirst      mistake = "look before the claim"
	purgeFirst     mistake = "purge before the digest is durable"
	staleBelieved  mistake = "a stale filter is believed"
	halfBelieved   mistake = "a filter is believed while it fills"
	unannounced    mistake = "digests are not announced before their records go"
	hitDropped     mistake = "a hit is acked without a letter"
	hitRun         mistake = "a hit runs"
	failedBelieved mistake = "a look that failed is taken for no"
)

const (
	simKeys   = 5
	simCopies = 6
)

// world is one run of the simulation.
type world struct {
	*rand.Rand
	bad     mistake
	at      time.Time
	db      *memory.DB
	procs   []*proc
	effects map[string]int
	letters map[string]bool
	gone    map[driver.Key]time.Time // when a sweep removed a record
	nonces  uint64
	trace   []string
	wrong   string
	perhaps bool
}

// proc is a process: its view of the tier, and its own filter.
type proc struct {
	w     *world
	tier  *Tier
	store driver.Store
}

// view is a process's store: between any two of its steps the world goes on.
type view struct {
	*memory.Store
	w *world
}

func (v *view) Claim(ctx context.Context, c ...driver.Claim) ([]driver.Grant, error) {
	v.w.meanwhile()
	g, err := v.Store.Claim(ctx, c...)
	v.w.meanwhile()
	return g, err
}

func (v *view) Remembered(ctx context.Context, k ...driver.Key) ([]driver.Digest, error) {
	v.w.meanwhile()
	if v.w.IntN(20) == 0 {
		if v.w.bad == failedBelieved {
			return make([]driver.Digest, len(k)), nil
		}
		return nil, errors.New("no answer")
	}
	d, err := v.Store.Remembered(ctx, k...)
	for i := range d {
		if at, ok := v.w.gone[k[i]]; ok && v.w.bad == purgeFirst && v.w.at.Sub(at) < time.Minute {
			d[i] = driver.Digest{}
		}
	}
	return d, err
}

func (v *view) ScanDigests(ctx context.Context, recent bool, each func(driver.DigestHash, time.Time) error) error {
	if recent && v.w.bad == unannounced {
		return nil
	}
	return v.Store.ScanDigests(ctx, recent, each)
}

func newWorld(seed uint64, bad mistake, perhaps bool) *world {
	w := &world{
		Rand: rand.New(rand.NewPCG(seed, 71)), bad: bad, at: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		effects: map[string]int{}, letters: map[string]bool{}, gone: map[driver.Key]time.Time{}, perhaps: perhaps,
	}
	w.db = memory.Open(memory.WithClock(func() time.Time { return w.at }))
	for range 2 {
		p := &proc{w: w}
		v := &view{w.db.Store(), w}
		p.tier = NewTier(v, Options{
			Consumers: []string{"c"}, Keep: keepLong, Retention: keep, Now: w.now, Wall: w.now, Perhaps: perhaps,
		})
		p.store = New(v, p.tier)
		w.procs = append(w.procs, p)
	}
	return w
}

func (w *world) now() time.Time { return w.at }

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, w.at.Format("15:04:05 ")+fmt.Sprintf(format, args...))
}

// meanwhile is what others do between two steps.
func (w *world) meanwhile() {
	switch w.IntN(6) {
	case 0:
		w.sweep()
	case 1:
		w.at = w.at.Add(time.Duration(w.IntN(5000)) * time.Millisecond)
		w.sweep()
	case 2:
		w.at = w.at.Add(time.Duration(w.IntN(2000)) * time.Millisecond)
	}
}

func (w *world) sweep() {
	s := w.db.Store()
	ctx := context.Background()
	var there [simKeys]bool
	for i := range there {
		_, there[i], _ = s.Record(ctx, simKey(i))
	}
	if _, _, err := s.Sweep(ctx, 0, 1+w.IntN(4)); err != nil {
		panic(err)
	}
	for i, was := range there {
		if _, is, _ := s.Record(ctx, simKey(i)); was && !is {
			w.note("the record of %d goes", i)
			w.gone[simKey(i)] = w.at
		}
	}
}

func simKey(i int) driver.Key { return driver.Key{Consumer: "c", Raw: fmt.Sprint(i)} }

// run plays simCopies copies of each key.
func (w *world) run() string {
	ctx := context.Background()
	for _, p := range w.procs {
		if err := p.tier.Remember(ctx); err != nil {
			panic(err)
		}
	}
	left := make([]int, 0, simKeys*simCopies)
	for i := range simKeys * simCopies {
		left = append(left, i%simKeys)
	}
	w.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for _, i := range left {
		for range w.IntN(12) {
			w.pass()
		}
		w.deliver(w.procs[w.IntN(len(w.procs))], i)
		if w.wrong != "" {
			return w.wrong
		}
	}
	return ""
}

// pass lets time pass: the filters are kept as Tier.Run keeps them, unless their process stands still.
func (w *world) pass() {
	steps := 1 + w.IntN(8)
	still := w.IntN(3) // this process, if there is one of that number
	for step := range steps {
		w.at = w.at.Add(Refresh/2 + time.Duration(w.Int64N(int64(Refresh/2))))
		if step < steps-1 || w.IntN(2) == 0 {
			w.sweep() // else what is due goes while the next copy is claimed
		}
		for i, p := range w.procs {
			if i != still {
				p.keep()
			}
		}
	}
}

// keep is one round of Tier.Run.
func (p *proc) keep() {
	ctx := context.Background()
	if p.tier.stale() {
		if p.w.IntN(3) == 0 && p.w.bad != halfBelieved {
			p.tier.reset(filterLeast) // the fill goes on
			return
		}
		if p.w.bad == halfBelieved {
			f, _ := p.tier.reset(filterLeast)
			_ = f.Fill(func(func([32]byte, time.Time)) error { return nil })
			p.tier.filled = true
			return
		}
		_ = p.tier.fill(ctx)
	}
	_ = p.tier.refresh(ctx)
}

// deliver delivers a copy, and asks until there is an answer.
func (w *world) deliver(p *proc, i int) {
	w.nonces++
	c := driver.Claim{Key: simKey(i), DeliveryID: fmt.Sprint("m", w.nonces), Lease: lease}
	c.Nonce[0], c.Nonce[1], c.Nonce[2] = 1, byte(w.nonces>>8), byte(w.nonces)
	for range 50 {
		if w.bad == staleBelieved && p.tier.filled {
			p.tier.readAt = p.tier.moment()
		}
		asked := w.at
		g := p.claim(c)
		if g.Err != nil || g.Verdict == driver.Busy {
			continue
		}
		w.note("copy of %d: %v", i, g.Verdict)
		w.ended(p, i, g, asked)
		return
	}
	w.wrong = fmt.Sprintf("key %d: no answer in 50 tries", i)
}

// claim claims as the tier does, with the planted mistake.
func (p *proc) claim(c driver.Claim) driver.Grant {
	ctx := context.Background()
	inner := p.store.(*store).Store
	switch p.w.bad {
	case lookFirst:
		probe := []driver.Grant{{Verdict: driver.Acquired}}
		hits, err := p.tier.look(ctx, []driver.Claim{c}, probe)
		if err != nil {
			return driver.Grant{Err: err}
		}
		g, _ := inner.Claim(ctx, c)
		if len(hits) > 0 && g[0].Verdict == driver.Acquired {
			p.store.(*store).park(ctx, hits, g)
		}
		return g[0]
	case hitDropped, hitRun:
		g, _ := inner.Claim(ctx, c)
		hits, err := p.tier.look(ctx, []driver.Claim{c}, g)
		if err == nil && len(hits) > 0 && p.w.bad == hitDropped {
			g[0].Verdict = driver.Replay
		}
		return g[0]
	}
	g, err := p.store.Claim(ctx, c)
	if err != nil {
		return driver.Grant{Err: err}
	}
	return g[0]
}

// ended checks what came of a copy: the law is that no key takes effect twice, and no copy is acked without a terminal
// record or a letter.
func (w *world) ended(p *proc, i int, g driver.Grant, asked time.Time) {
	key := fmt.Sprint(i)
	rec, _, _ := w.db.Store().Record(context.Background(), simKey(i))
	switch g.Verdict {
	case driver.Acquired:
		if w.effects[key]++; w.effects[key] > 1 {
			w.wrong = fmt.Sprintf("key %d took effect %d times", i, w.effects[key])
		}
		out, err := p.store.Finish(context.Background(), driver.Finish{Hold: g.Hold, Final: driver.Complete, Keep: keep})
		if err != nil || out[0] != driver.Applied {
			w.wrong = fmt.Sprintf("key %d: completion %v, %v", i, out, err)
		}
	case driver.Replay:
		went, ok := w.gone[simKey(i)] // between the answer and this look
		if rec.State != driver.Completed && !(rec.State == driver.Absent && ok && !went.Before(asked)) {
			w.wrong = fmt.Sprintf("key %d was called done, and its record is %v", i, rec.State)
		}
	case driver.Parked:
		if w.letters[key] = true; rec.State != driver.Uncertain {
			w.wrong = fmt.Sprintf("key %d was called parked, and its record is %v", i, rec.State)
		}
		if w.effects[key] == 0 {
			w.wrong = fmt.Sprintf("key %d was parked before it took effect", i)
		}
	default:
		w.wrong = fmt.Sprintf("key %d: %v", i, g.Verdict)
	}
}

// TestFM71_RollOver plays seeds without a mistake: with filters, and with filters that say "perhaps" to everything. The
// outcome is the same in both.
func TestFM71_RollOver(t *testing.T) {
	seeds := uint64(1000)
	if testing.Short() {
		seeds = 100
	}
	var sum Stats
	parked := 0
	for seed := range seeds {
		for _, perhaps := range []bool{false, true} {
			w := newWorld(seed, none, perhaps)
			if wrong := w.run(); wrong != "" {
				t.Fatalf("seed %d, perhaps %v: %s\n%v", seed, perhaps, wrong, w.trace)
			}
			parked += len(w.letters)
			for _, p := range w.procs {
				s := p.tier.Stats()
				if !perhaps {
					sum.Skipped += s.Skipped
					sum.Hits += s.Hits
				} else if s.Skipped > 0 {
					t.Fatalf("seed %d: a filter that says perhaps to everything saved looks", seed)
				}
				sum.Lookups += s.Lookups
			}
		}
	}
	t.Logf("%d seeds: %d keys parked, %+v", seeds, parked, sum)
	if parked < int(seeds) || sum.Skipped < int64(seeds) || sum.Hits < int64(seeds)/2 {
		t.Errorf("the schedules hardly saw a late duplicate, or a filter that saves a look: %d, %+v", parked, sum)
	}
}

// TestFM71_PlantedMistakes: each mistake is found.
func TestFM71_PlantedMistakes(t *testing.T) {
	for _, bad := range []mistake{
		lookFirst, purgeFirst, staleBelieved, halfBelieved, unannounced, hitDropped, hitRun, failedBelieved,
	} {
		t.Run(string(bad), func(t *testing.T) {
			for seed := range uint64(3000) {
				if wrong := newWorld(seed, bad, false).run(); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Error("was not found")
		})
	}
}
