package harness

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// Usage is time on the clock, time of the processors (of this process, and of the servers), and what PostgreSQL wrote ahead.
type Usage struct {
	Wall, Client, Server time.Duration
	WAL                  int64 // bytes
}

// Watch starts to measure; the returned function stops.
func (e *Env) Watch() func() Usage {
	wal := e.servers.wal()
	server, client, begin := e.servers.cpu(), clientCPU(), time.Now()
	return func() Usage {
		u := Usage{Wall: time.Since(begin), Client: clientCPU() - client, Server: e.servers.cpu() - server}
		u.WAL = e.servers.wal() - wal
		return u
	}
}

func clientCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tick is the unit of processor time in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// treeCPU sums the processor time of a process and its children, those that ended included: their time is in the
// parent's once it has waited for them, which a postmaster does.
func treeCPU(pid int) (time.Duration, error) {
	sum, err := processCPU(pid, true)
	if err != nil {
		return 0, err
	}
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0, err
	}
	for field := range bytes.FieldsSeq(list) {
		child, err := strconv.Atoi(string(field))
		if err != nil {
			return 0, fmt.Errorf("children of process %d: %w", pid, err)
		}
		d, err := processCPU(child, false)
		if errors.Is(err, os.ErrNotExist) {
			continue // it ended meanwhile
		}
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// processCPU reads utime and stime (fields 14 and 15 of /proc/PID/stat, see proc(5)), and with ended also cutime and
// cstime (16 and 17).
func processCPU(pid int, ended bool) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in parentheses, and may hold spaces.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	last := 13
	if ended {
		last = 15
	}
	if len(fields) < last {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var sum int64
	for _, field := range fields[11:last] {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
