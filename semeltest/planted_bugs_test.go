package semeltest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// bug is one mistake of a store.
type bug struct {
	name string
	in   string // a case that has to find it
	make func(s *planted)
}

func bugs() []bug {
	type (
		ctx   = context.Context
		holds = []driver.Hold
		outs  = []driver.Outcome
	)
	return append([]bug{
		{"a doubt that was resolved is listed on", "uncertain records are listed", func(s *planted) {
			s.list = func(s *planted, rs []driver.Record) []driver.Record {
				for _, r := range rs {
					if !slices.ContainsFunc(s.parked, func(p driver.Record) bool { return p.Key == r.Key }) {
						s.parked = append(s.parked, r)
					}
				}
				if len(rs) > 0 {
					return s.parked
				}
				return rs
			}
		}},
		{"a key that a takeover parked is not listed", "uncertain records are listed", func(s *planted) {
			s.list = func(_ *planted, rs []driver.Record) []driver.Record {
				return slices.DeleteFunc(rs, func(r driver.Record) bool { return r.Reason == "" || r.Takeover == driver.Once })
			}
		}},
		{"writes do not compare the nonce (FM85)", "cells", func(s *planted) {
			s.finish = func(s *planted, ctx ctx, f []driver.Finish) (outs, error) {
				return s.forged(ctx, f, func(mine, theirs driver.Hold) bool {
					return mine.Token == theirs.Token && mine.Generation == theirs.Generation
				})
			}
		}},
		{"writes do not compare the token (FM12)", "cells", func(s *planted) {
			s.finish = func(s *planted, ctx ctx, f []driver.Finish) (outs, error) {
				return s.forged(ctx, f, func(mine, theirs driver.Hold) bool {
					return mine.Nonce == theirs.Nonce && mine.Generation == theirs.Generation
				})
			}
		}},
		{"writes do not compare the generation", "cells", func(s *planted) {
			s.finish = func(s *planted, ctx ctx, f []driver.Finish) (outs, error) {
				return s.forged(ctx, f, func(mine, theirs driver.Hold) bool { return mine.Nonce == theirs.Nonce && mine.Token == theirs.Token })
			}
		}},
		{"unowned writes return Applied", "cells", func(s *planted) {
			s.finish = func(s *planted, ctx ctx, f []driver.Finish) (outs, error) {
				out, err := s.store().Finish(ctx, f...)
				for i := range out {
					out[i] = driver.Applied
				}
				return out, err
			}
		}},
		{"a late completion of a parked key is lost", "cells", func(s *planted) {
			s.finish = func(s *planted, ctx ctx, f []driver.Finish) (outs, error) {
				out := make(outs, len(f))
				for i := range f {
					if r, _, _ := s.Record(ctx, f[i].Hold.Key); r.State == driver.Uncertain && f[i].Final == driver.Complete {
						out[i] = driver.Lost
						continue
					}
					o, err := s.store().Finish(ctx, f[i])
					if err != nil {
						return nil, err
					}
					out[i] = o[0]
				}
				return out, nil
			}
		}},
		{"a release forgets that the handler ran", "cells", func(s *planted) {
			s.finish = func(s *planted, ctx ctx, f []driver.Finish) (outs, error) {
				g := append([]driver.Finish(nil), f...)
				for i := range g {
					if g[i].Final == driver.Release && g[i].Ran == driver.MaybeApplied {
						g[i].Ran = driver.NotApplied
					}
				}
				return s.store().Finish(ctx, g...)
			}
		}},
		{"zombies extend (FM10)", "cells", func(s *planted) {
			s.extend = func(s *planted, ctx ctx, d time.Duration, h holds) (outs, error) {
				g := append(holds(nil), h...)
				for i := range g {
					g[i] = s.current(ctx, g[i].Key)
				}
				return s.store().Extend(ctx, d, g...)
			}
		}},
		{"an extension of a completed record is Lost", "cells", func(s *planted) {
			s.extend = func(s *planted, ctx ctx, d time.Duration, h holds) (outs, error) {
				out, err := s.store().Extend(ctx, d, h...)
				for i := range out {
					if out[i] == driver.Settled {
						out[i] = driver.Lost
					}
				}
				return out, err
			}
		}},
	}, slices.Concat(moreBugs(), versionBugs(), claimBugs())...)
}

// without changes the claims before they are decided.
func without(change func(c *driver.Claim)) func(s *planted) {
	return func(s *planted) {
		s.claim = func(s *planted, ctx context.Context, c []driver.Claim) ([]driver.Grant, error) {
			d := append([]driver.Claim(nil), c...)
			for i := range d {
				change(&d[i])
			}
			return s.store().Claim(ctx, d...)
		}
	}
}

func moreBugs() []bug {
	type ctx = context.Context
	return []bug{
		{"fingerprints are not compared (FM51)", "cells", without(func(c *driver.Claim) { c.Fingerprint = "" })},
		{"an older recipe is a mismatch (FM52)", "cells", func(s *planted) {
			s.grant = func(_ *planted, c driver.Claim, g *driver.Grant) {
				if strings.HasPrefix(string(c.Fingerprint), "rcp0") && g.Verdict == driver.Replay {
					g.Verdict = driver.Mismatch
				}
			}
		}},
		{"the digest of the body is dropped (FM51)", "cells", without(func(c *driver.Claim) { c.BodyDigest = 0 })},
		{"the digests of a batch are mixed up (FM51)", "cells", func(s *planted) {
			s.claim = func(s *planted, ctx ctx, c []driver.Claim) ([]driver.Grant, error) {
				d := append([]driver.Claim(nil), c...)
				for i := range d {
					d[i].BodyDigest = c[(i+1)%len(c)].BodyDigest
				}
				return s.store().Claim(ctx, d...)
			}
		}},
		{"another body is not reported (FM51)", "cells", func(s *planted) {
			s.grant = func(_ *planted, _ driver.Claim, g *driver.Grant) { g.OtherPayload = false }
		}},
		{"another body is always a mismatch (FM51)", "cells", without(func(c *driver.Claim) { c.WholeBody = true })},
		{"the policy is the claimer's (FM82)", "cells", without(func(c *driver.Claim) { c.Takeover = driver.Resume })},
		{"tenants are mixed up (FM57)", "FM54", without(func(c *driver.Claim) { c.Key.Tenant = "" })},
		{"keys end at NUL (FM55)", "FM55", without(func(c *driver.Claim) { c.Key.Raw, _, _ = strings.Cut(c.Key.Raw, "\x00") })},
		{"keys are compared without case (FM56)", "FM5", without(func(c *driver.Claim) { c.Key.Raw = strings.ToLower(c.Key.Raw) })},
		{"the own nonce is somebody else's (FM31)", "cells", func(s *planted) {
			s.grant = func(_ *planted, c driver.Claim, g *driver.Grant) {
				if g.Verdict == driver.Acquired && g.Hold.Nonce == c.Nonce && s.seen[c.Key] == g.Hold {
					g.Verdict, g.Wait = driver.Busy, time.Hour
				}
				s.seen[c.Key] = g.Hold
			}
		}},
		{"a takeover forgets its doubt", "cells", func(s *planted) {
			s.grant = func(_ *planted, _ driver.Claim, g *driver.Grant) { g.Unknown = false }
		}},
		{"a busy claim is not given a wait", "cells", func(s *planted) {
			s.grant = func(_ *planted, _ driver.Claim, g *driver.Grant) { g.Wait = 0 }
		}},
		{"results in another order", "batches", func(s *planted) {
			s.claim = func(s *planted, ctx ctx, c []driver.Claim) ([]driver.Grant, error) {
				g, err := s.store().Claim(ctx, c...)
				for i, j := 0, len(g)-1; i < j; i, j = i+1, j-1 {
					g[i], g[j] = g[j], g[i]
				}
				return g, err
			}
		}},
		{"read, then write: two acquire (FM13)", "FM13", func(s *planted) {
			s.claim = func(s *planted, ctx ctx, c []driver.Claim) ([]driver.Grant, error) {
				out := make([]driver.Grant, len(c))
				for i := range c {
					_, found, _ := s.Record(ctx, c[i].Key)
					if strings.HasPrefix(c[i].Key.Raw, "raced") {
						time.Sleep(time.Millisecond) // others claim between the read and the claim
					}
					g, err := s.store().Claim(ctx, c[i])
					if err != nil {
						return nil, err
					}
					if out[i] = g[0]; !found {
						out[i].Verdict = driver.Acquired
					}
				}
				return out, nil
			}
		}},
		{"tokens restart after a purge (FM12)", "FM12 tokens survive a purge", func(s *planted) {
			s.sweep = func(s *planted, ctx ctx, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
				swept, more, err := s.store().Sweep(ctx, horizon, limit, consumers...)
				if left, _ := s.Records(ctx, driver.RecordFilter{}); swept.Purged > 0 && len(left) == 0 {
					s.forget()
				}
				return swept, more, err
			}
		}},
		{"a sweep purges before the retention ends (FM41)", "sweep", func(s *planted) {
			s.sweep = func(s *planted, ctx ctx, horizon time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
				s.clock.advance(48 * time.Hour)
				defer s.clock.advance(-48 * time.Hour)
				return s.store().Sweep(ctx, horizon, limit, consumers...)
			}
		}},
		{"a sweep parks nothing", "sweep", func(s *planted) {
			s.sweep = func(s *planted, ctx ctx, _ time.Duration, limit int, consumers ...string) (driver.Swept, bool, error) {
				return s.store().Sweep(ctx, 0, limit, consumers...)
			}
		}},
		{"effects are written without the guard", "commit is guarded", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				return s.each(ctx, w, func(x *driver.Work) { x.Finish.Hold = s.current(ctx, x.Finish.Hold.Key) })
			}
		}},
		{"works are committed one by one", "commit refused", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				return s.each(ctx, w, func(*driver.Work) {})
			}
		}},
		{"a deadlock is reported as the item's own fault", "FM46 commit refused", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				out, err := s.locking(ctx, w)
				if item := (*driver.ItemError)(nil); errors.As(err, &item) {
					item.Transient = false
				}
				return out, err
			}
		}},
		{"one refused statement is reported as an outage (FM46)", "FM46 commit refused", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				out, err := s.locking(ctx, w)
				if item := (*driver.ItemError)(nil); errors.As(err, &item) && item.Transient {
					err = fmt.Errorf("%w: %w: %w", driver.ErrNotCommitted, driver.ErrOutage, item.Err)
				}
				return out, err
			}
		}},
		{"a lock is waited for until the caller gives up (FM47)", "FM47 commit blocked", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				out, err := s.locking(ctx, w)
				if errors.Is(err, driver.ErrBlocked) {
					err = errors.New("no response in time")
				}
				return out, err
			}
		}},
		{"one unreadable record fails the call (FM82)", "FM82 a record", func(s *planted) {
			s.claim = func(s *planted, ctx ctx, c []driver.Claim) ([]driver.Grant, error) {
				if rest, _ := s.readable(c); len(rest) < len(c) {
					return nil, fmt.Errorf("planted: %w", driver.ErrUnreadable)
				}
				return s.store().Claim(ctx, c...)
			}
		}},
		{"an unreadable record hides the others in a list (FM82)", "FM82 a record", func(s *planted) {
			s.left = func(rs []driver.Record, err error) ([]driver.Record, error) {
				if err != nil {
					rs = nil
				}
				return rs, err
			}
		}},
		{"an unreadable record is left out silently (FM82)", "FM82 a record", func(s *planted) {
			s.left = func(rs []driver.Record, _ error) ([]driver.Record, error) { return rs, nil }
		}},
		{"a refused row is left out of its message's effects", "commit refuses one row", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				v := append([]driver.Work(nil), w...)
				for {
					out, err := s.locking(ctx, v)
					item := (*driver.ItemError)(nil)
					if !errors.As(err, &item) {
						return out, err
					}
					v[item.Index].Effects = nil
				}
			}
		}},
		{"a refused row is blamed on the first message of its statement", "commit refuses one row", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				out, err := s.locking(ctx, w)
				if item := (*driver.ItemError)(nil); errors.As(err, &item) {
					item.Index = 0
				}
				return out, err
			}
		}},
		{"rows are written for lost holds", "commit writes rows", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				return s.each(ctx, w, func(x *driver.Work) { x.Finish.Hold = s.current(ctx, x.Finish.Hold.Key) })
			}
		}},
		{"rows of batches are forgotten", "transactions write the rows", func(s *planted) {
			s.begin = func(s *planted, ctx ctx, c []driver.Claim) (driver.Tx, []driver.Grant, error) {
				tx, g, err := s.store().Begin(ctx, c...)
				if tx == nil {
					return nil, g, err
				}
				return deafTx{tx}, g, err
			}
		}},
		{"acks do not join", "commit joins", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				v := append([]driver.Work(nil), w...)
				for i := range v {
					v[i].Ack = nil
				}
				return s.store().Commit(ctx, v...)
			}
		}},
		{"messages are emitted by losers too", "commit emits", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				for _, x := range w {
					if len(x.Emit) > 0 && x.Finish.Hold != s.current(ctx, x.Finish.Hold.Key) {
						_ = s.clock.db.Queue(x.Emit[0].Queue).Send(ctx, x.Emit...)
					}
				}
				return s.store().Commit(ctx, w...)
			}
		}},
		{"a rollback leaves the claims (FM72)", "FM72", func(s *planted) {
			s.begin = func(s *planted, ctx ctx, c []driver.Claim) (driver.Tx, []driver.Grant, error) {
				tx, g, err := s.store().Begin(ctx, c...)
				if tx == nil {
					return nil, g, err
				}
				return &leakyTx{tx, s, c}, g, err
			}
		}},
		{"a transaction forgets the effects of its batch", "transactions write the effects", func(s *planted) {
			s.begin = func(s *planted, ctx ctx, c []driver.Claim) (driver.Tx, []driver.Grant, error) {
				tx, g, err := s.store().Begin(ctx, c...)
				if tx == nil {
					return nil, g, err
				}
				return deafTx{tx}, g, err
			}
		}},
		{"the effects of a batch are written though one hold was lost", "transactions write the effects", func(s *planted) {
			s.begin = func(s *planted, ctx ctx, c []driver.Claim) (driver.Tx, []driver.Grant, error) {
				tx, g, err := s.store().Begin(ctx, c...)
				if tx == nil {
					return nil, g, err
				}
				return hastyTx{tx, s}, g, err
			}
		}},
		{"every conflict row is a duplicate (FM69)", "FM69", func(s *planted) {
			s.begin = func(s *planted, ctx ctx, c []driver.Claim) (driver.Tx, []driver.Grant, error) {
				tx, g, err := s.store().Begin(ctx, c...)
				for i := range g {
					if _, found, _ := s.Record(ctx, c[i].Key); found {
						g[i].Verdict = driver.Replay
					}
				}
				return tx, g, err
			}
		}},
	}
}
