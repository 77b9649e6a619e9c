package memory

import (
	"errors"
	"fmt"

	"github.com/semel-dev/semel/driver"
)

// ErrExists is the error of an Insert whose key exists: the unique constraint of these tables.
var ErrExists = errors.New("row exists")

// Row is one row of a table. Rows that Append wrote have no key.
type Row struct{ Key, Value string }

// Tables have the rows that handlers wrote. Tests read them and compare them with their expectations. Methods may be called
// concurrently.
type Tables struct {
	db     *DB
	byName map[string]*table
}

type table struct {
	rows  []Row
	index map[string]int // place of a keyed row
}

// Get returns the value of a keyed row.
func (t *Tables) Get(name, key string) (value string, ok bool) {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	return t.get(name, key)
}

func (t *Tables) get(name, key string) (string, bool) {
	if tab := t.byName[name]; tab != nil {
		if i, ok := tab.index[key]; ok {
			return tab.rows[i].Value, true
		}
	}
	return "", false
}

// Rows returns a copy of a table, in the order in which its rows were first written.
func (t *Tables) Rows(name string) []Row {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if tab := t.byName[name]; tab != nil {
		return append([]Row(nil), tab.rows...)
	}
	return nil
}

// Len counts the rows of a table.
func (t *Tables) Len(name string) int {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if tab := t.byName[name]; tab != nil {
		return len(tab.rows)
	}
	return 0
}

// verb is the kind of an effect.
type verb uint8

const (
	put verb = iota
	insert
	appendRow
	refuse
)

// effect is one write as data.
type effect struct {
	verb  verb
	table string
	row   Row
	err   error
}

// Effects is a buffer of writes to [Tables] that commit with the record, all or none (mode A2, protocol section 3). It
// is the T of semel.InTx on this store. The zero value is empty and ready.
type Effects struct{ list []effect }

// Put writes a row, new or not.
func (e *Effects) Put(table, key, value string) {
	e.list = append(e.list, effect{verb: put, table: table, row: Row{key, value}})
}

// Insert writes a new row. If the key exists at commit, the effects are refused with [ErrExists].
func (e *Effects) Insert(table, key, value string) {
	e.list = append(e.list, effect{verb: insert, table: table, row: Row{key, value}})
}

// Append writes a row without a key. Such a ledger shows every repetition.
func (e *Effects) Append(table, value string) {
	e.list = append(e.list, effect{verb: appendRow, table: table, row: Row{"", value}})
}

// Refuse makes the commit refuse these effects with err, as a database refuses an invalid statement.
func (e *Effects) Refuse(err error) {
	e.list = append(e.list, effect{verb: refuse, err: err})
}

// undo is how to take back one write of a table's row or of a record.
type undo struct {
	table  *table
	fresh  bool // the row was new: it is the last one
	at     int
	before Row

	record  *record
	written driver.Record
	version uint64
	absent  bool
}

// apply carries out effects and adds them to the undo log.
func (t *Tables) apply(list []effect, log []undo) ([]undo, error) {
	for _, e := range list {
		if e.verb == refuse {
			return log, e.err
		}
		tab := t.byName[e.table]
		if tab == nil {
			tab = &table{index: map[string]int{}}
			t.byName[e.table] = tab
		}
		at, there := tab.index[e.row.Key]
		switch {
		case e.verb == insert && there:
			return log, fmt.Errorf("insert %q into %q: %w", e.row.Key, e.table, ErrExists)
		case e.verb == put && there:
			log = append(log, undo{table: tab, at: at, before: tab.rows[at]})
			tab.rows[at] = e.row
		default:
			log = append(log, undo{table: tab, fresh: true})
			if e.verb != appendRow {
				tab.index[e.row.Key] = len(tab.rows)
			}
			tab.rows = append(tab.rows, e.row)
		}
	}
	return log, nil
}

// takeBack undoes the writes of a log, the latest first.
func (s *Store) takeBack(log []undo) {
	for i := len(log) - 1; i >= 0; i-- {
		u := &log[i]
		switch {
		case u.table != nil && u.fresh:
			last := len(u.table.rows) - 1
			if key := u.table.rows[last].Key; u.table.index[key] == last {
				delete(u.table.index, key)
			}
			u.table.rows = u.table.rows[:last]
		case u.table != nil:
			u.table.rows[u.at] = u.before
		case u.absent:
			s.remove(u.record)
		default:
			u.record.Record, u.record.version = u.written, u.version
		}
	}
}
