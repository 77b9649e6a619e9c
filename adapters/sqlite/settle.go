package sqlite

import (
	"slices"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

const (
	sqlFlight      = "SELECT first, last, rest, parted FROM semel_flight WHERE hand = ?"
	sqlFlightRest  = "UPDATE semel_flight SET rest = ? WHERE hand = ?"
	sqlFlightPart  = "UPDATE semel_flight SET parted = 1 WHERE hand = ?"
	sqlFlightUntil = "UPDATE semel_flight SET until = ?, hold = ? WHERE hand = ?"
	sqlRunHas      = "SELECT pos FROM semel_stream WHERE pos BETWEEN ? AND ?"
	sqlBodyDelete  = "DELETE FROM semel_body WHERE pos BETWEEN ? AND ?"
	sqlTimed       = "SELECT hand, grp FROM semel_timed WHERE pos = ?"
	sqlTimedDelete = "DELETE FROM semel_timed WHERE pos = ?"
	// 1 until 2 hold 3 pos
	sqlTimedBack   = "UPDATE semel_timed SET until = ?, hold = ?, held = 0, hand = 0 WHERE pos = ?"
	sqlTimedExtend = "UPDATE semel_timed SET until = ?, hold = ?, held = 1 WHERE pos = ? AND hand = ?"
	// sqlGroupNext lets the next of a group go. 1 queue 2 grp
	sqlGroupNext = `UPDATE semel_timed SET waits = 0 WHERE pos =
  (SELECT pos FROM semel_timed WHERE queue = ? AND grp = ? ORDER BY pos LIMIT 1) AND waits = 1`
)

// settle ends deliveries of one queue inside the transaction.
func (t *txn) settle(name string, s []*driver.Settlement) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(s))
	row, err := t.queue(name, true)
	if err != nil {
		return nil, err
	}
	acks := make([]int, 0, len(s)) // of runs
	for i := range s {
		if err := t.deadLetters(row, s[i]); err != nil {
			return nil, err
		}
		rc := s[i].Receipt.(*receipt)
		switch {
		case rc.Settled():
		case rc.run && (s[i].Action == driver.Ack || s[i].Action == driver.Dead):
			acks = append(acks, i)
		default:
			if out[i], err = t.settleOne(row, s[i], rc); err != nil {
				return nil, err
			}
		}
	}
	return out, t.settleRuns(row, s, acks, out)
}

func (t *txn) deadLetters(row *queueRow, s *driver.Settlement) error {
	if s.Close != "" {
		if _, err := t.s.exec(rowqueue.DeleteDeadLetter, row.name, s.Close); err != nil {
			return err
		}
	}
	if s.Action == driver.Dead {
		return t.putDeadLetter(row, s.DeadLetter)
	}
	return nil
}

// flight is a row of semel_flight.
type flight struct{ first, last, rest, parted int64 }

func (t *txn) flight(hand int64) (f flight, ok bool, err error) {
	ok, err = t.s.one([]*int64{&f.first, &f.last, &f.rest, &f.parted}, sqlFlight, hand)
	return f, ok, err
}

// settleRuns removes messages of runs. Messages that were received together are mostly acknowledged together, so neighbours
// go with one statement.
func (t *txn) settleRuns(row *queueRow, s []*driver.Settlement, acks []int, out []driver.Outcome) error {
	at := func(i int) *receipt { return s[i].Receipt.(*receipt) }
	slices.SortFunc(acks, func(a, b int) int { return int(at(a).Pos - at(b).Pos) })
	for len(acks) > 0 {
		hand := at(acks[0]).hand
		n := 1
		for n < len(acks) && at(acks[n]).hand == hand {
			n++
		}
		if err := t.settleFlight(row, hand, acks[:n], s, out); err != nil {
			return err
		}
		acks = acks[n:]
	}
	return nil
}

// settleFlight removes messages of one delivery. acks are in the order of their positions.
func (t *txn) settleFlight(row *queueRow, hand int64, acks []int, s []*driver.Settlement, out []driver.Outcome) error {
	at := func(i int) *receipt { return s[i].Receipt.(*receipt) }
	f, flying, err := t.flight(hand)
	if err != nil {
		return err
	}
	removed := int64(0)
	for len(acks) > 0 {
		n, long := 1, at(acks[0]).long
		for n < len(acks) && at(acks[n]).Pos-at(acks[n-1]).Pos <= 1 {
			long = long || at(acks[n]).long
			n++
		}
		first, last := at(acks[0]).Pos, at(acks[n-1]).Pos
		if !flying || f.parted != 0 {
			gone, err := t.settleParted(row, flying, acks[:n], s, out)
			if err != nil {
				return err
			}
			removed += gone
		} else {
			// The run is ours and nothing was returned: a missing message was removed by this receipt before.
			gone, err := t.s.exec(sqlStreamDelete, first, last)
			if err != nil {
				return err
			}
			removed += gone
			for _, i := range acks[:n] {
				out[i] = driver.Applied
			}
			if long {
				if _, err := t.s.exec(sqlBodyDelete, first, last); err != nil {
					return err
				}
			}
		}
		acks = acks[n:]
	}
	if !flying || removed == 0 {
		return nil
	}
	return t.flightRest(hand, f.rest-removed)
}

// settleParted removes messages of a run that has ended, or that some messages have left.
func (t *txn) settleParted(row *queueRow, flying bool, acks []int, s []*driver.Settlement, out []driver.Outcome) (removed int64, err error) {
	for k, i := range acks {
		rc := s[i].Receipt.(*receipt)
		if k > 0 && rc == s[acks[k-1]].Receipt.(*receipt) { // the same receipt twice in one call
			out[i] = out[acks[k-1]]
			continue
		}
		n := int64(0)
		if flying {
			if n, err = t.s.exec(sqlStreamDelete, rc.Pos, rc.Pos); err != nil {
				return removed, err
			}
		}
		if n == 1 {
			removed++
			out[i] = driver.Applied
			if rc.long {
				_, err = t.s.exec(sqlBodyDelete, rc.Pos, rc.Pos)
			}
		} else {
			out[i], err = t.settleOne(row, s[i], rc)
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// flightRest stores how many messages of a run are left, and removes a run without any.
func (t *txn) flightRest(hand, rest int64) (err error) {
	if rest > 0 {
		_, err = t.s.exec(sqlFlightRest, rest, hand)
	} else {
		_, err = t.s.exec(sqlFlightDelete, hand)
	}
	return err
}

// settleOne ends one delivery of semel_timed, or returns one of a run.
func (t *txn) settleOne(row *queueRow, s *driver.Settlement, rc *receipt) (driver.Outcome, error) {
	if rc.run && rowqueue.Returns(s.Action) {
		moved, err := t.leaveRun(row, rc, s.After, false)
		if moved || err != nil {
			return driver.Applied, err
		}
	}
	var hand int64
	group := ""
	err := t.s.query(func(v rowstore.Row) error {
		hand, group = v.Int(0), v.Text(1)
		return nil
	}, sqlTimed, rc.Pos)
	if err != nil {
		return driver.Unknown, err
	}
	if hand != rc.hand { // gone, returned, or handed out again
		return driver.Lost, nil
	}
	t.wake(row)
	if rowqueue.Returns(s.Action) {
		after := max(s.After, 0)
		_, err := t.s.exec(sqlTimedBack, rowstore.Micro(t.now.Add(after)), after.Microseconds(), rc.Pos)
		return driver.Applied, err
	}
	if _, err := t.s.exec(sqlTimedDelete, rc.Pos); err != nil {
		return driver.Unknown, err
	}
	if rc.long {
		if _, err := t.s.exec(sqlBodyDelete, rc.Pos, rc.Pos); err != nil {
			return driver.Unknown, err
		}
	}
	if group != "" {
		if _, err := t.s.exec(sqlGroupNext, row.id, group); err != nil {
			return driver.Unknown, err
		}
	}
	return driver.Applied, nil
}

// leaveRun moves one message of a run to semel_timed. false: the run has ended or the message has left it.
func (t *txn) leaveRun(row *queueRow, rc *receipt, after time.Duration, held bool) (bool, error) {
	f, flying, err := t.flight(rc.hand)
	if !flying || err != nil {
		return false, err
	}
	after = max(after, 0)
	hand := rc.hand
	if !held {
		hand = 0
		t.wake(row)
	}
	n, err := t.s.exec(sqlToTimed, row.id, rowstore.Micro(t.now.Add(after)), after.Microseconds(), rowstore.Flag(held), hand, rc.Pos, rc.Pos)
	if n == 0 || err != nil {
		return false, err
	}
	if _, err := t.s.exec(sqlStreamDelete, rc.Pos, rc.Pos); err != nil {
		return false, err
	}
	if _, err := t.s.exec(sqlFlightPart, rc.hand); err != nil {
		return false, err
	}
	return true, t.flightRest(rc.hand, f.rest-1)
}

func (t *txn) extendAll(name string, visible time.Duration, list []any) ([]driver.Outcome, error) {
	out := make([]driver.Outcome, len(list))
	row, err := t.queue(name, true)
	if err != nil {
		return nil, err
	}
	// A run stays together if it is extended as a whole.
	runs := map[int64]map[int64]bool{}
	for _, r := range list {
		if rc := r.(*receipt); rc.run {
			if runs[rc.hand] == nil {
				runs[rc.hand] = map[int64]bool{}
			}
			runs[rc.hand][rc.Pos] = true
		}
	}
	whole := map[int64]bool{}
	for hand, members := range runs {
		if whole[hand], err = t.extendRun(hand, visible, members); err != nil {
			return nil, err
		}
	}
	for i, r := range list {
		rc := r.(*receipt)
		if out[i] = driver.Applied; rc.run && whole[rc.hand] {
			continue
		}
		if out[i], err = t.extendOne(row, rc, visible); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// extendRun extends a run when members are all that is left of it.
func (t *txn) extendRun(hand int64, visible time.Duration, members map[int64]bool) (bool, error) {
	f, flying, err := t.flight(hand)
	if !flying || f.rest != int64(len(members)) || err != nil {
		return false, err
	}
	all := true
	err = t.s.query(func(v rowstore.Row) error {
		all = all && members[v.Int(0)]
		return nil
	}, sqlRunHas, f.first, f.last)
	if !all || err != nil {
		return false, err
	}
	_, err = t.s.exec(sqlFlightUntil, rowstore.Micro(t.now.Add(visible)), visible.Microseconds(), hand)
	return true, err
}

func (t *txn) extendOne(row *queueRow, rc *receipt, visible time.Duration) (driver.Outcome, error) {
	if rc.run {
		moved, err := t.leaveRun(row, rc, visible, true)
		if moved || err != nil {
			return driver.Applied, err
		}
	}
	n, err := t.s.exec(sqlTimedExtend, rowstore.Micro(t.now.Add(visible)), visible.Microseconds(), rc.Pos, rc.hand)
	if n == 1 {
		return driver.Applied, err
	}
	return driver.Lost, err
}
