package console

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/words"
)

const (
	// refusalEvery is how often refused requests are written to the store, at most.
	refusalEvery = time.Minute
	// refusalKinds bounds the entries of one day: one for each user and reason. Further ones share an entry.
	refusalKinds = 20
)

// refusals counts refused requests, so that whoever sends many of them neither fills the audit log nor keeps the store busy.
type refusals struct {
	mu      sync.Mutex
	day     string
	kinds   map[[2]string]*refusedKind // of the day, by user and reason
	pending map[string]driver.AuditEntry
	timer   *time.Timer // of the next write; nil: nothing is pending
	written time.Time
	writing sync.Mutex // held by writes, so that they do not overtake one another
}

type refusedKind struct {
	id    string
	n     int
	since time.Time
}

// refused counts a refused request, and plans the write of its entry: at once, or a minute after the last write.
func (c *Console) refused(r *http.Request, why string) {
	if _, ok := driver.As[driver.RefusalLog](c.cfg.Store); !ok || c.cfg.Operator == nil {
		return
	}
	s, now, by := &c.refusals, time.Now().UTC(), words.Printable(c.cfg.By(r), 80)
	s.mu.Lock()
	defer s.mu.Unlock()
	if day := now.Format(time.DateOnly); s.day != day {
		s.day, s.kinds = day, map[[2]string]*refusedKind{}
	}
	kind := [2]string{by, why}
	if s.kinds[kind] == nil && len(s.kinds) >= refusalKinds {
		kind = [2]string{"", "other requests"}
	}
	one := s.kinds[kind]
	if one == nil {
		one = &refusedKind{id: rand.Text(), since: now}
		s.kinds[kind] = one
	}
	one.n++
	reason := words.Printable(fmt.Sprintf("%s %s from %s", r.Method, r.URL.Path, r.RemoteAddr), 200) + ": " + kind[1]
	if one.n > 1 {
		reason += fmt.Sprintf(" (the last of %d since %s)", one.n, stamp(one.since))
	}
	if s.pending == nil {
		s.pending = map[string]driver.AuditEntry{}
	}
	s.pending[one.id] = driver.AuditEntry{At: now, By: kind[0], Kind: driver.Refuse, Key: driver.Key{Consumer: c.cfg.Consumer}, Reason: reason}
	if s.timer == nil {
		s.timer = time.AfterFunc(max(0, s.written.Add(refusalEvery).Sub(now)), c.writeRefusals)
	}
}

// writeRefusals writes the entries that are pending.
func (c *Console) writeRefusals() {
	s := &c.refusals
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	pending := s.pending
	if s.timer != nil {
		s.timer.Stop()
		s.timer, s.pending, s.written = nil, nil, time.Now()
	}
	s.mu.Unlock()
	log, _ := driver.As[driver.RefusalLog](c.cfg.Store)
	ctx, cancel := context.WithTimeout(context.Background(), pageTimeout)
	defer cancel()
	for id, e := range pending {
		if err := log.LogRefusal(ctx, id, e); err != nil {
			c.cfg.Log.Warn("a refused request is not in the audit log of the store", "error", err)
		}
	}
}
