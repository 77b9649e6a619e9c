package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/semeltest/server"
	"github.com/semel-dev/semel/tests/internal/crew"
)

// TestFM50_DiskFull puts a table on a disk of 8 MB and fills it: what writes to the table fails with 53100. When there is
// space again everything has to go on. PostgreSQL's log is on another disk: where that is full the server itself goes
// down, which is a case of TestFM34.
func TestFM50_DiskFull(t *testing.T) {
	t.Parallel()
	server.Need(t, "tmpfs")
	for _, table := range []string{"ledger", "semel_record"} {
		t.Run(table, func(t *testing.T) { inModesAlone(t, func(r *fixture) { diskFull(r, table) }) })
	}
}

// TestFM50_SendRefused fills the disk of the messages: Send has to fail, and the refused message must not be there.
func TestFM50_SendRefused(t *testing.T) {
	t.Parallel()
	server.Need(t, "tmpfs")
	run(t, start(t, nil), crew.Queued, func(r *fixture) {
		disk := r.smallDisk("8m")
		r.sql("ALTER TABLE semel_message SET TABLESPACE " + disk.space)
		r.send(100)
		disk.fill(r)
		var refused []driver.Message
		q := r.db.Queue(crew.Queue)
		for range 1000 {
			refused = r.keys.Next(100)
			before := r.count(`SELECT count(*) FROM semel_message`)
			err := q.Send(r.Context(), refused...)
			if err == nil {
				continue
			}
			if !strings.Contains(err.Error(), "53100") || !strings.Contains(err.Error(), "disk is full") {
				r.Errorf("error %q does not say that the disk is full", err)
			}
			if after := r.count(`SELECT count(*) FROM semel_message`); after != before {
				r.Errorf("%d messages, %d before the send that was refused", after, before)
			}
			break
		}
		if r.refusals() == 0 {
			r.Fatal("nothing was refused")
		}
		if err := os.Remove(disk.ballast()); err != nil {
			r.Fatal(err)
		}
		if _, err := crew.Send(r.Context(), q, refused); err != nil {
			r.Fatal(err)
		}
		r.spawn(r.task())
		r.held()
	})
}

func diskFull(r *fixture, table string) {
	disk := r.smallDisk("8m")
	// Only workers write to the disk: a vacuum that it refuses says nothing of them, and the pages that one frees let the
	// workers go on.
	r.sql(fmt.Sprintf("ALTER TABLE %[1]s SET TABLESPACE %[2]s; ALTER TABLE %[1]s SET (autovacuum_enabled = false)",
		table, disk.space))
	before := r.refusals()
	r.send(3000)
	r.spawn(r.task())
	r.spawn(r.task())
	r.done(100)
	disk.fill(r)
	// PostgreSQL extends a table by many pages at once. More messages than fit on those have to wait. No more are sent than
	// the workers take: all of them have to be done in the end.
	r.until("a full disk", func() bool {
		if r.refusals() > before {
			return true
		}
		if r.count(`SELECT count(*) FROM semel_message`) < 100 {
			r.send(300)
		}
		return false
	})
	r.send(1000)
	// The outage outlives the leases, and every attempt that a message has: an outage is nobody's failure.
	began, already := time.Now(), r.refusals()
	time.Sleep(5 * time.Second) // longer than a lease: time is what this is about
	refused, outage := r.refusals()-already, time.Since(began)
	r.Logf("%d writes refused in %v", refused, outage)
	if refused > 100*int(outage/time.Second) {
		r.Errorf("%d writes were refused in %v: the workers do not wait", refused, outage)
	}
	if left := r.count(`SELECT count(*) FROM semel_message`); left == 0 {
		r.Error("no message is left: the disk was not full")
	}
	if err := os.Remove(disk.ballast()); err != nil {
		r.Fatal(err)
	}
	r.send(100)
	r.same()
	r.held()
}

// refusals counts how often the server said that there is no space: for a whole page, or for the rest of one.
func (r *fixture) refusals() int {
	log := r.server.Log()
	return strings.Count(log, "No space left on device") + strings.Count(log, ": wrote only ")
}

// smallDisk is a file system of its own with a table space on it.
type smallDisk struct{ dir, space string }

// smallDisk mounts one, which needs root. It goes when the test ends, with the database: the server could not write a
// checkpoint without it.
func (r *fixture) smallDisk(size string) *smallDisk {
	r.Helper()
	dir, err := os.MkdirTemp("", "semel-disk-")
	if err != nil {
		r.Fatal(err)
	}
	out, err := exec.Command("mount", "-t", "tmpfs", "-o", "mode=0755,size="+size, "tmpfs", dir).CombinedOutput()
	if err != nil {
		os.Remove(dir)
		server.LeaveOut(r.T, "tmpfs", fmt.Sprintf("none can be mounted: %v: %s", err, out))
	}
	d := &smallDisk{dir: dir, space: "small_" + strings.TrimPrefix(filepath.Base(dir), "semel-disk-")}
	r.Cleanup(func() { d.remove(r) })
	owner, err := os.Stat(filepath.Join(r.server.Dir(), "data"))
	if err != nil {
		r.Fatal(err)
	}
	stat := owner.Sys().(*syscall.Stat_t)
	space := filepath.Join(dir, "space")
	if err := errors.Join(os.Mkdir(space, 0o700), os.Chown(space, int(stat.Uid), int(stat.Gid))); err != nil {
		r.Fatal(err)
	}
	r.sql(fmt.Sprintf("CREATE TABLESPACE %s LOCATION '%s'", d.space, space))
	return d
}

func (d *smallDisk) ballast() string { return filepath.Join(d.dir, "ballast") }

// fill leaves no byte.
func (d *smallDisk) fill(r *fixture) {
	r.Helper()
	f, err := os.Create(d.ballast())
	if err != nil {
		r.Fatal(err)
	}
	defer f.Close()
	for zeros := make([]byte, 64<<10); len(zeros) >= 512; {
		if _, err := f.Write(zeros); err != nil {
			zeros = zeros[:len(zeros)/2]
		}
	}
}

func (d *smallDisk) remove(r *fixture) {
	for _, w := range r.workers {
		w.Kill()
	}
	r.db.Close()
	os.Remove(d.ballast()) // fails when it is gone already
	_, err := server.SQL(context.Background(), r.server.URL(),
		fmt.Sprintf("DROP DATABASE %s WITH (FORCE);\nDROP TABLESPACE %s;", r.name(), d.space))
	if err != nil {
		r.Error(err)
	}
	if out, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
		r.Errorf("unmount %s: %v: %s", d.dir, err, out)
	}
	os.Remove(d.dir)
}
