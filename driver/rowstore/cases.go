package rowstore

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel/driver"
)

// WriteCase keeps the row of semel_case when a record is written: there is one while the record needs a person
// ([driver.Record.Case]). Adapters call it in [Tx.Put], or do the same for many records at once.
func WriteCase(tx SQL, before, after *driver.Record) error {
	place := PlaceOf(&after.Key)
	if before.Case() {
		if err := tx.Exec("DELETE FROM semel_case WHERE place = ?", place); err != nil {
			return err
		}
	}
	if !after.Case() {
		return nil
	}
	return tx.Exec("INSERT INTO semel_case (place, consumer, state, since) VALUES (?, ?, ?, ?)",
		place, after.Key.Consumer, int64(after.State), after.UpdatedAt)
}

// Cases lists a page of cases. See [driver.CaseLister]. Each state is read in the order of its index, up to the limit. The cursor
// comes from semel_case, because a record that cannot be read gives none.
func (s *Store) Cases(ctx context.Context, f driver.CaseFilter) (page []driver.Record, next driver.Cursor, err error) {
	if err := f.Check(); err != nil {
		return nil, "", err
	}
	order, than := "", ">"
	if f.Newest {
		order, than = " DESC", "<"
	}
	var parts []string
	var args []any
	for _, state := range f.States() {
		q := &query{}
		q.WriteString("SELECT place AS case_place, since FROM semel_case")
		q.ofState(f.Consumer, state)
		if f.After != "" {
			since, place, err := f.After.Parts()
			if err != nil {
				return nil, "", err
			}
			q.where("(since, place) "+than+" (?, ?)", time.UnixMicro(since), Place(place))
		}
		q.WriteString(" ORDER BY since" + order + ", place" + order)
		q.limit(f.Limit + 1)
		parts, args = append(parts, "SELECT * FROM ("+q.String()+") c"+strconv.Itoa(int(state))), append(args, q.args...)
	}
	sql := "SELECT " + s.layout.Columns + ", c.since, c.case_place FROM (" + strings.Join(parts, " UNION ALL ") + ") c JOIN semel_record r ON r.place = c.case_place " +
		"ORDER BY c.since" + order + ", c.case_place" + order + " LIMIT ?"
	rows, last := 0, driver.Cursor("")
	err = s.db.Read(ctx, func(row Row) error {
		if rows++; rows > f.Limit {
			next = last
			return nil
		}
		since, place := row.Time(len(row)-2), row.Bytes(len(row)-1)
		last = driver.NewCursor(since.UnixMicro(), place)
		r, err := s.layout.Record(row)
		if errors.Is(err, driver.ErrUnreadable) {
			slog.Warn("a case is left out of the list", "place", hex.EncodeToString(place), "since", since, "err", err)
			return nil
		}
		page = append(page, r)
		return err
	}, sql, append(args, int64(f.Limit+1))...)
	if err != nil {
		return nil, "", fmt.Errorf("list cases: %w", err)
	}
	return page, next, nil
}

// ofState selects the cases of a consumer in a state, which is no parameter: plans know it.
func (q *query) ofState(consumer string, state driver.State) {
	if consumer != "" {
		q.where("consumer = ?", consumer)
	}
	q.where("state = " + strconv.Itoa(int(state)))
}

// CountCases counts cases, up to most in each state. See [driver.CaseLister].
func (s *Store) CountCases(ctx context.Context, consumer string, state driver.State, most int) (n int, err error) {
	f := driver.CaseFilter{State: state, Limit: max(most, 1)}
	if err := f.Check(); err != nil {
		return 0, err
	}
	for _, state := range f.States() {
		q := &query{}
		q.WriteString("SELECT count(*) FROM (SELECT 1 AS one FROM semel_case")
		q.ofState(consumer, state)
		q.WriteString(" ORDER BY since, place LIMIT ?) c") // so that the index is read
		err := s.db.Read(ctx, func(r Row) error { n += int(r.Int(0)); return nil }, q.String(), append(q.args, int64(most))...)
		if err != nil {
			return 0, fmt.Errorf("count cases: %w", err)
		}
	}
	return n, nil
}
