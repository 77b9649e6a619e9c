package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Redis starts a throw-away Redis on a free loopback port. It is durable: appendonly yes, appendfsync always, no
// snapshots, maxmemory-policy noeviction, unless the settings say otherwise. Settings are lines of redis.conf as they
// are: {"appendfsync": "everysec"}. Close ends it; so does the end of this process.
func Redis(ctx context.Context, o Options) (*Server, error) { return startRedis(ctx, redisPrograms, o) }

// Valkey does the same as [Redis] with a Valkey.
func Valkey(ctx context.Context, o Options) (*Server, error) {
	return startRedis(ctx, valkeyPrograms, o)
}

func startRedis(ctx context.Context, p programs, o Options) (*Server, error) {
	bins, err := find(ctx, p)
	if err != nil {
		return nil, err
	}
	s, err := makeDir(redis{p}, o)
	if err != nil {
		return nil, err
	}
	s.bins = bins
	if err := os.Mkdir(s.data(), 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make the data directory of %s: %w", p.service, err), s.Close())
	}
	if err := start(ctx, s, func(s *Server) error { return configureRedis(s, o.Settings) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func configureRedis(s *Server, settings map[string]string) error {
	all := map[string]string{
		"bind": "127.0.0.1", "port": strconv.Itoa(s.port), "dir": s.data(), "daemonize": "no",
		"appendonly": "yes", "appendfsync": "always", "save": `""`, "maxmemory-policy": "noeviction",
	}
	maps.Copy(all, settings)
	var b bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s %s\n", k, all[k])
	}
	if err := os.WriteFile(filepath.Join(s.dir, "redis.conf"), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the settings of redis: %w", err)
	}
	return nil
}

// redis is a Redis or a Valkey: they take the same settings.
type redis struct{ programs }

func (r redis) name() string { return r.service }

func (r redis) command(s *Server) *exec.Cmd {
	cmd := exec.Command(s.bins.path(r.names[0]), filepath.Join(s.dir, "redis.conf"))
	cmd.Dir, cmd.Env = s.dir, s.bins.env()
	return cmd
}

// ready asks for a PONG; a server that still loads its data responds with LOADING.
func (redis) ready(s *Server) bool {
	c, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	b := make([]byte, 64)
	n, _ := c.Read(b)
	return strings.HasPrefix(string(b[:n]), "+PONG")
}

func (redis) signal(m Mode) syscall.Signal {
	if m == Immediate {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

func (redis) url(s *Server) string { return "redis://" + s.Addr() + "/0" }
