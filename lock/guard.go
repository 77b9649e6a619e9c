package lock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// ErrStale reports a write with a token older than one that the resource has seen: its sender lost the lock.
var ErrStale = errors.New("stale fencing token")

// Execer is a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Guard runs an UPDATE that compares the token in its WHERE clause, and returns ErrStale if it changed no row. The
// statement has to store the token and to let only the present or a newer one through, and never 0, which is no token:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2 AND $2 > 0
//
// An absent row changes no row either: make sure that it exists.
func Guard(ctx context.Context, db Execer, update string, args ...any) error {
	res, err := db.ExecContext(ctx, update, args...)
	if err != nil {
		return fmt.Errorf("guarded update: %w", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("guarded update: count rows: %w", err)
	}
	if n == 0 {
		return fmt.Errorf("guarded update changed no row: %w", ErrStale)
	}
	return nil
}

// CheckHeader compares the token of a request with the newest that the resource has seen, and returns the newer one to
// be stored with the resource, in the same transaction as the write. ErrStale: refuse the request (409 Conflict).
//
// Any other error: the header is missing, given twice, or no token; refuse the request too (400 Bad Request). The token
// is the sender's word: it keeps slow holders out, not liars.
func CheckHeader(r *http.Request, seen uint64) (token uint64, err error) {
	values := r.Header.Values(HeaderName)
	if len(values) != 1 {
		return seen, fmt.Errorf("header %s is given %d times; send one fencing token", HeaderName, len(values))
	}
	token, err = strconv.ParseUint(values[0], 10, 63)
	if err != nil || token == 0 {
		return seen, fmt.Errorf("header %s is %q; send the number of a fencing token", HeaderName, values[0])
	}
	if token < seen {
		return seen, fmt.Errorf("token %d, seen was %d: %w", token, seen, ErrStale)
	}
	return token, nil
}
