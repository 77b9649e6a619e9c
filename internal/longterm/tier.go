package longterm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/front"
	"github.com/semel-dev/semel/internal/idle"
)

// Refresh is how often a filter reads what was announced, and Trust how long it is believed, counted from before it read:
// a digest that it does not have was announced later than that, and its record goes driver.DigestOverlap after. The
// difference is for announcements that are committed after the moment that they name: two minutes at most.
const (
	Refresh = driver.DigestOverlap / 3
	Trust   = driver.DigestOverlap * 4 / 5
)

// Sizes of the filter.
const (
	filterBytes    = 64 << 20 // at most; 20 million keys with 1 % false positives
	filterLeast    = 10_000   // keys
	falsePositives = 0.01
)

// Options of a tier.
type Options struct {
	// Consumers are those whose records are to leave digests, Keep is for how long.
	Consumers []string
	Keep      time.Duration
	// Retention is Finish.Keep of what the tier parks.
	Retention time.Duration
	// Now is a monotonic clock. Defaults to time.Now. Wall is the wall clock, because a monotonic one may stand still while
	// the machine sleeps: a filter is believed while both say so.
	Now, Wall func() time.Time
	// Logger is told of trouble.
	Logger *slog.Logger
	// Perhaps makes the filter answer "perhaps" to everything, for tests: it may cost looks and change nothing else.
	Perhaps bool
}

// Stats count what a tier did.
type Stats struct {
	// Lookups counts granted keys that were looked up, Hits those that were remembered and parked, FalsePositives those that
	// the filter could not rule out and that were not remembered. Skipped counts those that the filter ruled out.
	Lookups, Hits, FalsePositives, Skipped int64
	// Ready: the filter holds all digests. Bytes is its memory.
	Ready bool
	Bytes int64
}

// Tier is the long-term tier of one store value. It is safe for concurrent use.
type Tier struct {
	lt   driver.LongTerm
	scan driver.DigestScanner // nil: every key is looked up
	o    Options

	mu     sync.Mutex
	filter *front.Filter // nil before the first fill began
	room   int64         // digests that it was made for
	held   int64         // digests that are in it, about
	filled bool
	readAt moment // before the latest read of what was announced
	stats  Stats
}

// NewTier makes a tier. Until Run runs every granted key is looked up.
func NewTier(lt driver.LongTerm, o Options) *Tier {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Wall == nil {
		o.Wall = func() time.Time { return time.Now().Round(0) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tier{lt: lt, o: o}
	t.scan, _ = driver.As[driver.DigestScanner](lt)
	return t
}

// Stats tells what the tier did.
func (t *Tier) Stats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	if t.filter != nil {
		s.Ready, s.Bytes = t.trusted(t.moment()), t.filter.Stats().Bytes
	}
	return s
}

func (t *Tier) parked() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Hits++
}

// moment is a time by both clocks.
type moment struct{ mono, wall time.Time }

func (t *Tier) moment() moment { return moment{t.o.Now(), t.o.Wall()} }

// covered reports that no record can have gone by now whose announcement was not there to be read at that moment. A wall
// clock that was set back says nothing.
func (now moment) covered(at moment) bool {
	wall := now.wall.Sub(at.wall)
	return now.mono.Sub(at.mono) < Trust && wall >= 0 && wall < Trust
}

// trusted reports that the filter holds every digest whose record can be gone by now. t.mu is held.
func (t *Tier) trusted(now moment) bool {
	return t.filled && !t.o.Perhaps && now.covered(t.readAt)
}

// look looks up what was granted, and answers what is remembered. When the look fails the grants in question are marked as
// unknown, and the error is returned besides.
func (t *Tier) look(ctx context.Context, c []driver.Claim, grants []driver.Grant) ([]hit, error) {
	var keys []driver.Key
	var at []int
	var perhaps []bool
	for i := range c {
		if grants[i].Err != nil || grants[i].Verdict != driver.Acquired || c[i].Version != "" || reopened(&c[i], &grants[i]) {
			continue
		}
		for _, k := range [...]driver.Key{c[i].Key, c[i].Mirror} {
			if k == (driver.Key{}) {
				continue
			}
			if mayHave, sure := t.mayHave(k); mayHave {
				keys, at, perhaps = append(keys, k), append(at, i), append(perhaps, sure)
			}
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	found, err := t.lt.Remembered(ctx, keys...)
	if err == nil && len(found) != len(keys) {
		err = errShort
	}
	if err != nil {
		err = fmt.Errorf("look whether %d keys are remembered: %w", len(keys), err)
		for _, i := range at {
			grants[i].Err = err
		}
		return nil, err
	}
	var hits []hit
	wrong := int64(0)
	for j, i := range at {
		switch {
		case !found[j].Found:
			if perhaps[j] {
				wrong++
			}
		case len(hits) == 0 || hits[len(hits)-1].at != i:
			hits = append(hits, hit{i, found[j]})
		}
	}
	t.mu.Lock()
	t.stats.Lookups += int64(len(keys))
	t.stats.FalsePositives += wrong
	t.mu.Unlock()
	return hits, nil
}

// reopened reports a run that a person ordered: the message of a redrive on a record that was there before. A redrive's
// message that finds no record is a late copy like any other. A record that began by it, and was only ever taken over, was
// perhaps never looked at.
func reopened(c *driver.Claim, g *driver.Grant) bool {
	return driver.IsRedrive(c.DeliveryID) && (g.Hold.Generation > 1 || g.Hold.Epoch > 0 || g.Takeovers < g.Attempt-1)
}

// mayHave asks the filter. sure: it was believed when it said so.
func (t *Tier) mayHave(k driver.Key) (mayHave, sure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.trusted(t.moment()) {
		return true, false
	}
	if t.filter.MayHave(k.Hash()) {
		return true, true
	}
	t.stats.Skipped++
	return false, true
}

// Run registers the consumers, again and again, because a server that fails over can lose that, and keeps the filter,
// until ctx is done. It blocks; one Run of a tier at a time.
func (t *Tier) Run(ctx context.Context) {
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := t.Remember(ctx)
		if err == nil {
			break
		}
		if ctx.Err() == nil {
			t.o.Logger.Warn("the store was not told to remember keys; it is tried again", "err", err)
		}
		if !idle.For(ctx, pause) {
			return
		}
	}
	var fill filling
	defer fill.stop()
	for pause := time.Duration(0); idle.For(ctx, pause); {
		if t.scan != nil && t.stale() {
			fill.stop()
			fill.start(ctx, t)
		}
		pause = Refresh
		if err := t.refresh(ctx); err != nil {
			if ctx.Err() == nil {
				t.o.Logger.Warn("announcements of digests were not read; it is tried again", "err", err)
			}
			pause = 5 * time.Second
		}
		if fill.failed() {
			pause = 5 * time.Second
		}
	}
}

// Remember registers the consumers.
func (t *Tier) Remember(ctx context.Context) error {
	for _, c := range t.o.Consumers {
		if err := t.lt.Remember(ctx, c, t.o.Keep); err != nil {
			return err
		}
	}
	return nil
}

// stale reports that the filter has to be filled: there is none, its last fill failed, it missed announcements, or it is
// too small.
func (t *Tier) stale() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.filter == nil || !t.moment().covered(t.readAt) || t.filled && t.held > t.room && t.room < filterBytes/2
}

// refresh registers the consumers again and reads what was announced since.
func (t *Tier) refresh(ctx context.Context) error {
	if err := t.Remember(ctx); err != nil {
		return err
	}
	t.mu.Lock()
	f, began := t.filter, t.moment()
	t.mu.Unlock()
	if f == nil {
		return nil // its fill has just failed
	}
	n := int64(0)
	err := t.scan.ScanDigests(ctx, true, func(h driver.DigestHash, _ time.Time) error {
		n++
		f.Add(wide(h))
		return nil
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil || f != t.filter || !began.covered(t.readAt) {
		return err // what it missed may have been announced and gone meanwhile: stale
	}
	t.readAt = began
	t.held += n // those that were there the last time count twice: an estimate
	return nil
}

// wide is a digest's hash as the filter takes it, which looks at the first 16 bytes.
func wide(h driver.DigestHash) (w [32]byte) {
	copy(w[:], h[:])
	return w
}

// filling is a fill of a filter under way.
type filling struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

func (f *filling) stop() {
	if f.cancel != nil {
		f.cancel()
		<-f.done
		f.cancel = nil
	}
}

// failed reports a fill that ended with an error, once.
func (f *filling) failed() bool {
	if f.cancel == nil {
		return false
	}
	select {
	case <-f.done:
		err := f.err
		f.stop()
		return err != nil
	default:
		return false
	}
}

// start makes a new filter and fills it beside the refreshes.
func (f *filling) start(ctx context.Context, t *Tier) {
	fillCtx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	f.cancel, f.done, f.err = cancel, done, nil
	t.reset(filterLeast)
	go func() {
		defer close(done)
		if f.err = t.fill(fillCtx); f.err != nil && ctx.Err() == nil {
			t.o.Logger.Warn("the filter of remembered keys was not filled; every key is looked up until it is", "err", f.err)
			t.mu.Lock()
			t.filter, t.filled = nil, false
			t.mu.Unlock()
		}
	}()
}

// reset makes an empty filter for so many digests, and begins to count from now on what was read.
func (t *Tier) reset(room int64) (f *front.Filter, at time.Time) {
	at = time.Now()
	// The filter's time stands still: nothing leaves it but by a new fill, so that no clock can make it forget.
	f, err := front.NewFilter(front.FilterOptions{
		Keys: int(room), FalsePositives: falsePositives, Bytes: 2 * filterBytes, Span: 24 * time.Hour, Generations: 2,
		Now: func() time.Time { return at },
	})
	if err != nil {
		panic(fmt.Sprintf("longterm: %v", err)) // constants
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.filter, t.filled, t.room, t.held, t.readAt = f, false, room, 0, t.moment()
	return f, at
}

var errReplaced = errors.New("another fill began")

// fill fills the filter with all digests. Refreshes add to it meanwhile.
func (t *Tier) fill(ctx context.Context) error {
	st, err := t.lt.DigestStats(ctx)
	if err != nil {
		return err
	}
	f, born := t.reset(max(filterLeast, st.Count+st.Count/2))
	n := int64(0)
	err = f.Fill(func(add func(hash [32]byte, at time.Time)) error {
		return t.scan.ScanDigests(ctx, false, func(h driver.DigestHash, _ time.Time) error {
			n++
			add(wide(h), born)
			return ctx.Err()
		})
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f != t.filter {
		return errReplaced
	}
	t.filled = true
	t.held += n
	return nil
}
