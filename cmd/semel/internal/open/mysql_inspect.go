package open

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/mysql"
	"github.com/semel-dev/semel/ops"
)

// Examine asks the server what a worker with these options meets.
func (d mysqlDB) Examine(ctx context.Context, o Options) ([]ops.Check, error) {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var used, now int64
	asked := time.Now()
	err := d.SQL().QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)").Scan(&now)
	took := time.Since(asked)
	if err == nil {
		var name string
		err = d.SQL().QueryRowContext(ctx, "SHOW STATUS LIKE 'Threads_connected'").Scan(&name, &used)
	}
	if err != nil {
		return nil, fmt.Errorf("examine %s: %w", d.t.Shown, err)
	}
	clock := serverClock(time.UnixMicro(now), asked, took)
	return append(mysqlFacts(d.Facts(), int(used), o.Committers), clock), nil
}

// leastPacket is the least max_allowed_packet that is not worth a warning.
const leastPacket = 4 << 20

// mysqlFacts judges the settings of a server that has used connections.
func mysqlFacts(s mysql.Facts, used, committers int) []ops.Check {
	var f Facts
	name := "MySQL "
	if strings.Contains(strings.ToLower(s.Version), "mariadb") {
		name = "MariaDB "
	}
	if s.ReadOnly {
		f.Add(ops.LevelDanger, "server", "the primary", "%s is read-only, as a replica is: nothing can be written to it", name+s.Version)
	} else {
		f.Add(ops.LevelOK, "server", "", "%s, which can be written to", name+s.Version)
	}
	if s.FlushLog != 1 {
		f.Add(ops.LevelDanger, "commits", "SET GLOBAL innodb_flush_log_at_trx_commit = 1, also in my.cnf",
			"innodb_flush_log_at_trx_commit is %d: a crash of the machine loses the commits of the last second, whose messages were acknowledged", s.FlushLog)
	} else {
		f.Add(ops.LevelOK, "commits", "", "innodb_flush_log_at_trx_commit is 1: a commit is on disk")
	}
	f.When(s.Binlog && s.SyncBinlog != 1, ops.LevelDanger, "replication", "SET GLOBAL sync_binlog = 1, also in my.cnf",
		"sync_binlog is %d: after a crash of the server its replicas can have other commits than itself", s.SyncBinlog)
	f.When(s.Binlog && !s.SemiSync && !s.Galera, ops.LevelWarning, "replication", "semi-synchronous replication, if a replica ever takes over",
		"replication is asynchronous: a failover loses the last commits, and their messages run again")
	f.When(s.Galera, ops.LevelWarning, "cluster", "one node for all workers (a proxy that writes to one)",
		"a Galera cluster: commits on two nodes can refuse each other and are repeated, and a read on another node can be late")
	f.When(s.Engine != "", ops.LevelDanger, "engine", "ALTER TABLE … ENGINE = InnoDB", "a table of semel is in the engine %s, which has no transactions", s.Engine)
	f.When(s.Isolation != "READ-COMMITTED", ops.LevelDanger, "isolation", "a proxy that passes SET SESSION on, or none",
		"sessions have the isolation level %s although semel sets READ-COMMITTED: claims would deadlock", s.Isolation)
	f.When(s.MaxPacket < leastPacket, ops.LevelWarning, "packet", "SET GLOBAL max_allowed_packet = 16777216, also in my.cnf",
		"max_allowed_packet is %d: larger bodies and results are refused", s.MaxPacket)
	need, left := connectionsOf(committers), s.MaxConnections-used
	if left < need {
		f.Add(ops.LevelDanger, "connections", "fewer --committers, or a higher max_connections", "a worker needs %d, and %d of the server's %d are in use", need, used, s.MaxConnections)
	} else {
		f.Add(ops.LevelOK, "connections", "", "a worker needs %d; the server has %d, %d in use", need, s.MaxConnections, used)
	}
	return f
}
