package semeltest_test

import (
	"context"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// claimBugs are mistakes of commits that bring their claims.
func claimBugs() []bug {
	type ctx = context.Context
	brought := func(change func(s *planted, ctx ctx, w *driver.Work)) func(s *planted) {
		return func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				return s.each(ctx, w, func(w *driver.Work) {
					if w.Claim != nil {
						change(s, ctx, w)
					}
				})
			}
		}
	}
	// found has a commit complete the record that it finds.
	found := func(s *planted, ctx ctx, w *driver.Work) {
		if r, ok, _ := s.Record(ctx, w.Claim.Key); ok && r.Nonce != w.Claim.Nonce {
			w.Claim, w.Finish.Hold = nil, r.Hold()
		}
	}
	fresh := func(_ *planted, _ ctx, w *driver.Work) {
		claim := *w.Claim
		claim.Nonce[0]++
		w.Claim = &claim
	}
	return []bug{
		{"a commit that brings its claim completes the record that it finds", "commit brings claims", brought(found)},
		{"a commit that brings its claim completes the record that it finds", "cells", brought(found)},
		{"a commit that brings its claim does not know its own record", "commit brings claims", brought(fresh)},
		{"a commit that brings its claim does not know its own record", "cells", brought(fresh)},
		{"a claim at the commit makes a record", "commit brings claims", without(func(c *driver.Claim) { c.AtCommit = false })},
		{"the loser's effects are written (FM13)", "FM13 one of many commits", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				out, err := s.store().Commit(ctx, w...)
				for i := range out {
					if out[i] != driver.Lost || w[i].Claim == nil {
						continue
					}
					again := w[i]
					k := driver.Key{Consumer: w[i].Claim.Key.Raw, Raw: fmt.Sprint(w[i].Claim.Nonce)}
					again.Claim, again.Finish.Hold.Key = &driver.Claim{Key: k, Nonce: w[i].Claim.Nonce}, k
					if _, err := s.store().Commit(ctx, again); err != nil {
						return nil, err
					}
				}
				return out, err
			}
		}},
		{"refused effects leave the inserted records", "commit with claims refused", func(s *planted) {
			s.commit = func(s *planted, ctx ctx, w []driver.Work) ([]driver.Outcome, error) {
				out, err := s.store().Commit(ctx, w...)
				if err != nil && w[0].Claim != nil {
					left := w[0]
					left.Effects = nil
					_, _ = s.store().Commit(ctx, left)
				}
				return out, err
			}
		}},
	}
}
