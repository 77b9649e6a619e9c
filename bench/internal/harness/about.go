package harness

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// About tells what a run was made on and of.
type About struct {
	At       time.Time `json:"at"`
	Machine  string    `json:"machine"`
	Cores    int       `json:"cores"`
	Memory   string    `json:"memory"`
	System   string    `json:"system"`
	Revision string    `json:"revision,omitempty"`
	// Load is the load average of the minute before: what others do on the machine while it is measured.
	Load     float64           `json:"load"`
	Versions map[string]string `json:"versions"`
}

// libraries are the modules whose versions the report names.
var libraries = []string{
	"github.com/riverqueue/river", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v4",
	"github.com/ThreeDotsLabs/watermill-kafka/v3", "github.com/ThreeDotsLabs/watermill-amqp", "github.com/ThreeDotsLabs/watermill-nats/v2",
	"github.com/ThreeDotsLabs/watermill-redisstream",
	"github.com/hibiken/asynq", "github.com/vgarvardt/gue/v5", "github.com/jackc/pgx/v5", "github.com/redis/go-redis/v9",
	"modernc.org/sqlite",
}

// Describe asks the servers and the system.
func (s *Servers) Describe(ctx context.Context) (a About, err error) {
	a = About{
		At: time.Now().UTC().Truncate(time.Second), Machine: procField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(),
		Memory: procField("/proc/meminfo", "MemTotal"), System: runtime.GOOS + "/" + runtime.GOARCH,
		Versions: map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")},
	}
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		a.System += ", kernel " + string(bytes.TrimSpace(release))
	}
	if load, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(load), &a.Load)
	}
	var version string
	if err := s.admin.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return a, fmt.Errorf("ask PostgreSQL for its version: %w", err)
	}
	a.Versions["PostgreSQL"], _, _ = strings.Cut(version, " ")
	c := s.client()
	info, err := c.InfoMap(ctx, "server").Result()
	if err != nil {
		return a, fmt.Errorf("ask Redis for its version: %w", err)
	}
	if err := c.Close(); err != nil {
		return a, err
	}
	a.Versions["Redis"] = info["Server"]["redis_version"]
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, set := range build.Settings {
			if set.Key == "vcs.revision" {
				a.Revision = set.Value[:min(12, len(set.Value))]
			}
		}
		for _, m := range build.Deps {
			for _, name := range libraries {
				if m.Path == name {
					a.Versions[name] = m.Version
				}
			}
		}
	}
	return a, nil
}

// procField is the first value of a field in a file of lines "name: value".
func procField(path, field string) string {
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == field {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}
