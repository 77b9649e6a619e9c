package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/semel-dev/semel/driver"
)

// This file bounds what handlers' statements may take inside semel's transactions, and names who blocks them. A statement
// that waits for a lock, or never ends, must not hold up the other messages of its transaction.

const (
	// sqlLimits bounds the statements of a transaction. 1 statement 2 lock, in milliseconds
	sqlLimits = `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true)`

	// sqlBlockers names the sessions that a session waits for. 1 pid
	sqlBlockers = `SELECT b, coalesce(a.application_name, ''), coalesce(a.usename, ''), coalesce(a.state, ''), a.xact_start
  FROM unnest(pg_blocking_pids($1::int)) b LEFT JOIN pg_stat_activity a ON a.pid = b LIMIT 3`

	// After a lock was waited for in vain, others are waited for briefly: one session often locks many rows.
	briefly, brieflyFor = 50 * time.Millisecond, 10 * time.Second
)

// limits are what the statements of a handler may take.
type limits struct {
	db *DB
	// alone: the transaction has the effects of one item. What is too slow then is too slow by itself.
	alone bool
	wait  time.Duration
	// statement and lock are the settings, in milliseconds.
	statement, lock string
}

// newLimits bounds statements (0 = not at all) and their waits for locks. It raises no limit of the role or the URL, and
// gives up a lock before the statement.
func newLimits(db *DB, statement, wait time.Duration) *limits {
	if role := db.info.statementTimeout; role > 0 && (statement <= 0 || role < statement) {
		statement = role
	}
	if role := db.info.lockTimeout; role > 0 {
		wait = min(wait, role)
	}
	if statement > 0 {
		wait = min(wait, statement/2)
	}
	wait = max(wait, time.Millisecond)
	l := &limits{db: db, wait: wait, statement: "0", lock: strconv.Itoa(int(millis(wait)))}
	if statement > 0 {
		l.statement = strconv.Itoa(int(millis(statement)))
	}
	return l
}

// add adds the limits to a transaction.
func (l *limits) add(p *pipeline) { p.exec("limit the statements", sqlLimits, l.statement, l.lock) }

// limit adds the bounds of the effects that follow, within the time that ctx leaves. A single item gets most of it.
func (p *pipeline) limit(ctx context.Context, db *DB, alone bool) {
	left := db.o.MaxTx
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	statement := left / 2
	if alone {
		statement = left * 4 / 5
	}
	wait := min(db.o.LockWait, left/4)
	if time.Since(time.Unix(0, db.blockedAt.Load())) < brieflyFor {
		wait = min(wait, briefly)
	}
	p.limits = newLimits(db, statement, wait)
	p.limits.alone = alone
	p.limits.add(p)
}

// refusal is the error of an item whose statement was refused. It may be transient (driver.ItemError.Transient), or caused
// by another session's lock.
func (l *limits) refusal(item int, err error, w *lockWatch) error {
	switch {
	case l.blocked(err):
		return &driver.ItemError{Index: item, Err: fmt.Errorf("%w: %w%s", driver.ErrBlocked, err, w.end())}
	case l.alone && code(err) == codeCancelled:
		return &driver.ItemError{Index: item, Err: err}
	}
	return &driver.ItemError{Index: item, Err: err, Transient: environmental(err)}
}

// blocked reports an error of a lock that was waited for in vain, and has others waited for briefly.
func (l *limits) blocked(err error) bool {
	is := code(err) == codeLocked
	if is {
		l.db.blockedAt.Store(time.Now().UnixNano())
	}
	return is
}

// refusable reports an error that an item's statement can cause: nothing was committed, and the server can write.
func refusable(err error) bool { return err != nil && definite(err) && !outage(err) }

// isItem reports an error that names an item.
func isItem(err error) bool {
	var item *driver.ItemError
	return errors.As(err, &item)
}

// lockWatch asks from time to time, on another connection, who blocks a session. The server knows only while the session
// waits.
type lockWatch struct {
	stop context.CancelFunc
	done chan struct{}
	who  string // until done
}

// watch begins to ask after half of the time that a statement may wait.
func (l *limits) watch(ctx context.Context, pid uint32) *lockWatch {
	if l == nil {
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	w := &lockWatch{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(l.wait / 2):
			}
			w.who = cmp.Or(l.db.blockers(ctx, pid), w.who)
		}
	}()
	return w
}

// end stops asking and returns what was found.
func (w *lockWatch) end() string {
	if w == nil {
		return ""
	}
	w.stop()
	<-w.done
	return w.who
}

// blockers names the sessions that block another one, "" when there are none or the server does not say.
func (db *DB) blockers(ctx context.Context, pid uint32) string {
	rows, err := db.pool.Query(ctx, sqlBlockers, int32(pid))
	if err != nil {
		return ""
	}
	var (
		out              []string
		by               int32
		app, user, state string
		since            *time.Time
	)
	_, err = pgx.ForEachRow(rows, []any{&by, &app, &user, &state, &since}, func() error {
		text := fmt.Sprintf("session %d (application %q, user %q, %s", by, app, user, state)
		if by == 0 {
			text = "a prepared transaction (see pg_prepared_xacts"
		}
		if since != nil {
			text += ", its transaction is open since " + since.UTC().Format(time.RFC3339)
		}
		out = append(out, text+")")
		return nil
	})
	if err != nil || len(out) == 0 {
		return ""
	}
	return ", held by " + strings.Join(out, " and ")
}

// runEffects runs the statements of one item one at a time.
func (l *limits) runEffects(ctx context.Context, conn *pgx.Conn, item int, list []driver.Statement) error {
	w := l.watch(ctx, conn.PgConn().PID())
	defer w.end()
	err := l.runAlone(ctx, conn, list)
	if refusable(err) {
		return l.refusal(item, err, w)
	}
	return err
}

// blameless reports that the transaction was refused for its content without naming an item: a deferred constraint fails at
// COMMIT, arguments and SQL are refused before the first statement is sent, and a statement can have rows of several items.
func blameless(err error) bool {
	if isSeveral(err) {
		return true
	}
	if err == nil || !definite(err) || isItem(err) || code(err) == codeGuard {
		return false
	}
	return errors.Is(err, errRolledBack) || !environmental(err)
}

// runAlone runs the statements of one item, ends them, and limits those of the next.
func (l *limits) runAlone(ctx context.Context, conn *pgx.Conn, list []driver.Statement) error {
	for i := range list {
		st := &list[i]
		tag, err := execAlone(ctx, conn, st)
		if err == nil {
			err = expect(st, tag)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", effectName(i, st.SQL), err)
		}
	}
	if len(list) == 0 {
		return nil
	}
	p := &pipeline{}
	e := effects{db: l.db, p: p, last: -1}
	e.endRole(list)
	e.end(-1, true, true)
	p.add(step{what: "defer constraints", item: -1}, "SET CONSTRAINTS ALL DEFERRED")
	l.add(p)
	return p.run(ctx, conn)
}

// execAlone runs one statement. It uses Query, because Exec without arguments speaks the simple protocol, where one text
// may carry several statements: a COMMIT behind an INSERT would separate the effect from its record.
func execAlone(ctx context.Context, conn *pgx.Conn, st *driver.Statement) (tag pgconn.CommandTag, err error) {
	defer catch(&err)
	rows, err := conn.Query(ctx, markEffect+st.SQL, st.Args...)
	if err == nil {
		rows.Close()
		tag, err = rows.CommandTag(), rows.Err()
	}
	if err != nil && code(err) == "" && !conn.IsClosed() && ctx.Err() == nil {
		err = &argsError{err}
	}
	return tag, err
}

// argsError reports arguments that could not be sent.
type argsError struct{ error }

func (e *argsError) Unwrap() error { return e.error }

// catch turns the panic of a method of an argument (Value, MarshalJSON, …) into an error.
func catch(err *error) {
	if v := recover(); v != nil {
		*err = &argsError{fmt.Errorf("a method of an argument panicked: %v", v)}
	}
}

// isArgs reports an error that the arguments of a statement caused.
func isArgs(err error) bool {
	var early pgx.ErrPreprocessingBatch
	var args *argsError
	return errors.As(err, &early) || errors.As(err, &args)
}

// isRows reports a number of rows that was not the one that a statement must change.
func isRows(err error) bool {
	var e *rowsError
	return errors.As(err, &e)
}
