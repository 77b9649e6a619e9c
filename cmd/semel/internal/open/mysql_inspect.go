package open

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/mysql"
)

// Examine asks the server what a worker with these options meets.
func (d mysqlDB) Examine(ctx context.Context, o Options) ([]Fact, error) {
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
	clock := server{now: time.UnixMicro(now)}.clock(asked, took)
	return append(mysqlFacts(d.Facts(), int(used), o.Committers), clock), nil
}

// leastPacket is the least max_allowed_packet that is not worth a warning.
const leastPacket = 4 << 20

// mysqlFacts judges the settings of a server that has used connections.
func mysqlFacts(f mysql.Facts, used, committers int) (facts []Fact) {
	name := "MySQL "
	if strings.Contains(strings.ToLower(f.Version), "mariadb") {
		name = "MariaDB "
	}
	add := func(level, check, try, detail string, args ...any) {
		facts = append(facts, Fact{level, check, fmt.Sprintf(detail, args...), try})
	}
	if f.ReadOnly {
		add(Danger, "server", "the primary", "%s is read-only, as a replica is: nothing can be written to it", name+f.Version)
	} else {
		add(OK, "server", "", "%s, which can be written to", name+f.Version)
	}
	if f.FlushLog != 1 {
		add(Danger, "commits", "SET GLOBAL innodb_flush_log_at_trx_commit = 1, also in my.cnf",
			"innodb_flush_log_at_trx_commit is %d: a crash of the machine loses the commits of the last second, whose messages were acknowledged", f.FlushLog)
	} else {
		add(OK, "commits", "", "innodb_flush_log_at_trx_commit is 1: a commit is on disk")
	}
	if f.Binlog && f.SyncBinlog != 1 {
		add(Danger, "replication", "SET GLOBAL sync_binlog = 1, also in my.cnf",
			"sync_binlog is %d: after a crash of the server its replicas can have other commits than itself", f.SyncBinlog)
	}
	if f.Binlog && !f.SemiSync && !f.Galera {
		add(Warning, "replication", "semi-synchronous replication, if a replica ever takes over",
			"replication is asynchronous: a failover loses the last commits, and their messages run again")
	}
	if f.Galera {
		add(Warning, "cluster", "one node for all workers (a proxy that writes to one)",
			"a Galera cluster: commits on two nodes can refuse each other and are repeated, and a read on another node can be late")
	}
	if f.Engine != "" {
		add(Danger, "engine", "ALTER TABLE … ENGINE = InnoDB", "a table of semel is in the engine %s, which has no transactions", f.Engine)
	}
	if f.Isolation != "READ-COMMITTED" {
		add(Danger, "isolation", "a proxy that passes SET SESSION on, or none",
			"sessions have the isolation level %s although semel sets READ-COMMITTED: claims would deadlock", f.Isolation)
	}
	if f.MaxPacket < leastPacket {
		add(Warning, "packet", "SET GLOBAL max_allowed_packet = 16777216, also in my.cnf",
			"max_allowed_packet is %d: larger bodies and results are refused", f.MaxPacket)
	}
	need, left := connectionsOf(committers), f.MaxConnections-used
	if left < need {
		add(Danger, "connections", "fewer --committers, or a higher max_connections", "a worker needs %d, and %d of the server's %d are in use", need, used, f.MaxConnections)
	} else {
		add(OK, "connections", "", "a worker needs %d; the server has %d, %d in use", need, f.MaxConnections, used)
	}
	return facts
}
