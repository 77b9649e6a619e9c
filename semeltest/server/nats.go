package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

var natsPrograms = programs{
	service: "nats", names: []string{"nats-server"}, dirs: []string{"/usr/sbin", "/usr/local/bin", "/usr/bin", "/opt/homebrew/bin"},
	packages: []string{"nats-server"}, install: "install nats-server 2.9 or newer",
}

// NATS starts a NATS server with JetStream on a free loopback port. Settings are lines of its configuration as they are, with
// jetstream. before those of the block jetstream: {"jetstream.sync_interval": "always", "http": "127.0.0.1:8222"}. Close ends
// it; so does the end of this process.
func NATS(ctx context.Context, o Options) (*Server, error) {
	bins, err := find(ctx, natsPrograms)
	if err != nil {
		return nil, err
	}
	s, err := makeDir(natsServer{}, o)
	if err != nil {
		return nil, err
	}
	s.bins = bins
	if err := start(ctx, s, func(s *Server) error { return configureNATS(s, o.Settings) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func configureNATS(s *Server, settings map[string]string) error {
	all := map[string]string{"listen": s.Addr(), "jetstream.store_dir": `"` + s.data() + `"`}
	maps.Copy(all, settings)
	var top, block bytes.Buffer
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if name, ok := strings.CutPrefix(k, "jetstream."); ok {
			fmt.Fprintf(&block, "  %s: %s\n", name, all[k])
		} else {
			fmt.Fprintf(&top, "%s: %s\n", k, all[k])
		}
	}
	text := fmt.Sprintf("%sjetstream {\n%s}\n", top.Bytes(), block.Bytes())
	if err := os.WriteFile(filepath.Join(s.dir, "nats.conf"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("write the settings of nats: %w", err)
	}
	return nil
}

type natsServer struct{}

func (natsServer) name() string { return "nats" }

func (natsServer) command(s *Server) *exec.Cmd {
	cmd := exec.Command(s.bins.path("nats-server"), "-c", filepath.Join(s.dir, "nats.conf"))
	cmd.Dir, cmd.Env = s.dir, s.bins.env()
	return cmd
}

// ready reports that the server has recovered its streams: it listens for clients after that.
func (natsServer) ready(s *Server) bool { return greets(s.Addr()) == nil }

func (natsServer) signal(m Mode) syscall.Signal {
	if m == Immediate {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

func (natsServer) url(s *Server) string { return "nats://" + s.Addr() }

// greets wants the first line of a NATS server that has JetStream.
func greets(addr string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(line, "INFO ") || !strings.Contains(line, `"jetstream":true`) {
		return fmt.Errorf("%s is no NATS server with JetStream", addr)
	}
	return nil
}

func tryNATS(_ context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	return greets(u.Host)
}
