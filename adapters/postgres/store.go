package postgres

import (
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Store keeps idempotency records. The plain case of every operation is one guarded statement, sent in one round trip;
// whatever that does not match is decided by the driver's Decide functions while the records are locked. What is not written
// for speed is that of package rowstore.
type Store struct {
	*slowPath
	db *DB
}

// maxResult is the largest result: a value of PostgreSQL, and a message of its protocol, ends at 1 GiB, and a replay has to
// carry it. flushBytes bounds the results that go into one statement.
const (
	maxResult  = 64 << 20
	flushBytes = 64 << 20
)

// slowPath is embedded under a name that programs do not see.
type slowPath = rowstore.Store

// Store returns the record store of the database; all of them are one.
func (db *DB) Store() *Store { return &Store{slowPath: rowstore.New(rows{db}), db: db} }

// Features describes the store. What of the server weakens its promise is in Caveats, as it was when Open looked.
func (s *Store) Features() driver.StoreFeatures {
	durable, caveats := s.db.caveats()
	return driver.StoreFeatures{
		Name: s.db.name, Kind: "postgres", Durable: durable, Caveats: caveats, ServerClock: true, Emits: true,
		MaxTx: s.db.o.MaxTx, MaxResult: maxResult, ListsUncertain: true,
	}
}

var (
	_ driver.Transactor      = (*Store)(nil)
	_ driver.RecordInspector = (*Store)(nil)
	_ driver.Operator        = (*Store)(nil)
	_ driver.Sweeper         = (*Store)(nil)
	_ driver.TxClassifier    = (*transaction)(nil)
	_ driver.StepStore       = (*Store)(nil)
	_ driver.DeadLetterStore = (*Store)(nil)
	_ driver.LongTerm        = (*Store)(nil)
	_ driver.AuditLog        = (*Store)(nil)
	_ driver.DuplicateLog    = (*Store)(nil)
	_ driver.Historian       = (*Store)(nil)
)
