package mysql

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/driver/rowqueue"
	"github.com/semel-dev/semel/driver/rowstore"
)

// Facts are settings of the server, and of this package's sessions on it.
type Facts struct {
	Version string
	// FlushLog is innodb_flush_log_at_trx_commit: 1 = each commit is on disk.
	FlushLog int
	// Binlog: the server writes a binary log, for replicas. SyncBinlog is after how many commits it is on disk; 0 = some time.
	// SemiSync: a commit waits for a replica.
	Binlog, SemiSync bool
	SyncBinlog       int
	// Galera: commits are certified by a cluster.
	Galera bool
	// ReadOnly: the server refuses writes, as a replica does.
	ReadOnly bool
	// RollbackOnTimeout is innodb_rollback_on_timeout: a lock that is waited for in vain rolls back the transaction.
	RollbackOnTimeout bool
	// MaxPacket is max_allowed_packet, the largest statement in bytes.
	MaxPacket int
	// MaxConnections is how many the server has.
	MaxConnections int
	// Isolation is the level of the sessions: READ-COMMITTED, unless a proxy prevents that.
	Isolation string
	// Engine is the storage engine of a table of semel that is not in InnoDB, or "".
	Engine string
}

// Facts returns what Open read.
func (db *DB) Facts() Facts { return db.facts }

// sqlVariables lists variables, some of which have two names.
const sqlVariables = `SHOW VARIABLES WHERE Variable_name IN ('version', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog',
  'rpl_semi_sync_master_enabled', 'rpl_semi_sync_source_enabled', 'wsrep_on', 'read_only', 'max_allowed_packet', 'max_connections',
  'tx_isolation', 'transaction_isolation', 'innodb_rollback_on_timeout')`

func (db *DB) inspect(ctx context.Context) (f Facts, err error) {
	v := map[string]string{}
	err = rows{db}.Read(ctx, func(r rowstore.Row) error { v[r.Text(0)] = r.Text(1); return nil }, sqlVariables)
	if err == nil {
		err = rows{db}.Read(ctx, func(r rowstore.Row) error { f.Engine = r.Text(0); return nil }, "SELECT COALESCE(MAX(engine), '') "+
			"FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'semel\\_%' AND engine <> 'InnoDB'")
	}
	number := func(name string) int { n, _ := strconv.Atoi(v[name]); return n }
	on := func(name string) bool { return v[name] == "ON" || v[name] == "1" }
	f.Version, f.FlushLog, f.Binlog, f.SyncBinlog = v["version"], number("innodb_flush_log_at_trx_commit"), on("log_bin"), number("sync_binlog")
	f.SemiSync = on("rpl_semi_sync_master_enabled") || on("rpl_semi_sync_source_enabled")
	f.Galera, f.ReadOnly, f.Isolation = on("wsrep_on"), on("read_only"), cmp.Or(v["transaction_isolation"], v["tx_isolation"])
	f.RollbackOnTimeout = on("innodb_rollback_on_timeout")
	f.MaxPacket, f.MaxConnections = number("max_allowed_packet"), number("max_connections")
	return f, rowstore.Wrap(err, "read the settings of %s", db.name)
}

// durability reports whether confirmed writes survive a crash of the server, and what can be lost.
func (f *Facts) durability() (durable bool, caveats []string) {
	if f.FlushLog != 1 {
		caveats = append(caveats, fmt.Sprintf("innodb_flush_log_at_trx_commit is %d: a crash of the server's machine can lose the commits of the "+
			"last second, and their effects, although their messages were acknowledged", f.FlushLog))
	}
	if f.Engine != "" {
		caveats = append(caveats, fmt.Sprintf("a table of semel is in the engine %s, which has no transactions", f.Engine))
	}
	durable = len(caveats) == 0
	if f.Binlog && f.SyncBinlog != 1 {
		caveats = append(caveats, fmt.Sprintf("sync_binlog is %d: after a crash of the server its replicas can have other commits than itself", f.SyncBinlog))
	}
	if f.Binlog && !f.SemiSync {
		caveats = append(caveats, "replication is asynchronous: a failover can lose the last commits")
	}
	return durable, caveats
}

const sqlStats = `SELECT
  COUNT(due_at <= now OR NULL), COUNT(due_at > now AND held = 1 OR NULL), COUNT(due_at > now AND held = 0 OR NULL),
  (SELECT COUNT(*) FROM semel_dead_letter WHERE queue = (SELECT id FROM semel_queue WHERE name = ?)),
  COALESCE(MAX(now) - MIN(sent_at), 0)
FROM (SELECT due_at, held, sent_at, n.now FROM semel_message m JOIN (SELECT `

// Stats counts the messages of the queue. Followers of a group's head are visible as soon as they are due.
func (q *Queue) Stats(ctx context.Context) (driver.QueueStats, error) {
	sql := sqlStats + q.db.clock + " AS now) n WHERE m.queue = " + queueID + ") x"
	return rowqueue.Stats(ctx, rows{q.db}, q.name, sql, rowstore.Name(q.name), rowstore.Name(q.name))
}

// CountMessages counts the messages of the queue up to a limit, in the order in which they are due. See [driver.QueueCounter].
func (q *Queue) CountMessages(ctx context.Context, most int) (driver.QueueStats, error) {
	sql := "SELECT state, COUNT(*), MAX(age) FROM (SELECT CASE WHEN due_at <= n.now THEN 0 WHEN held = 1 THEN 1 ELSE 2 END AS state, " +
		"n.now - sent_at AS age FROM (SELECT due_at, held, sent_at FROM semel_message WHERE queue = " + queueID +
		" ORDER BY waits, due_at, pos LIMIT ?) m JOIN (SELECT " + q.db.clock + " AS now) n) x GROUP BY state"
	return rowqueue.Count(ctx, rows{q.db}, q.name, most, sql, rowstore.Name(q.name), int64(most))
}

// queueSQL are the queries of package rowqueue.
var queueSQL = rowqueue.SQL{
	Peek:        "SELECT id, grp, sent_at, headers, body, count FROM semel_message WHERE queue = " + queueID + " ORDER BY pos LIMIT ?",
	DeadLetters: rowqueue.SelectDeadLetters + "WHERE queue = " + queueID + " ORDER BY seq",
}

var (
	_ driver.Queue             = (*Queue)(nil)
	_ driver.Sender            = (*Queue)(nil)
	_ driver.QueueInspector    = (*Queue)(nil)
	_ driver.Purger            = (*Queue)(nil)
	_ driver.DeadLetterQueue   = (*Queue)(nil)
	_ driver.DeadLetterPager   = (*Queue)(nil)
	_ driver.DeadLetterGrouper = (*Queue)(nil)
	_ driver.QueueCounter      = (*Queue)(nil)
	_ driver.Store             = (*Store)(nil)
	_ driver.Committer         = (*Store)(nil)
	_ driver.Transactor        = (*Store)(nil)
	_ driver.TxClassifier      = (*transaction)(nil)
	_ driver.DeadLetterStore   = (*Store)(nil)
)
