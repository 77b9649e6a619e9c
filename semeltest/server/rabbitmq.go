package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var rabbitPrograms = programs{
	// Debian's rabbitmq-server in PATH runs as another user with settings of its own. Beside it there is no rabbitmq-env.
	service: "rabbitmq", names: []string{"rabbitmq-env", "rabbitmq-server"},
	dirs:    []string{"/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin", "/opt/rabbitmq/sbin", "/opt/homebrew/opt/rabbitmq/sbin"},
	install: "install RabbitMQ 3.10 or newer",
}

// RabbitMQ starts a RabbitMQ node on free loopback ports, with a name, data and cookie of its own. Settings are lines of
// rabbitmq.conf ({"consumer_timeout": "60000"}), or environment variables ({"RABBITMQ_ENABLED_PLUGINS": "rabbitmq_management"}).
// The first start takes about 13 seconds. Close ends it; so does the end of this process. If no Erlang port mapper (epmd)
// runs on this machine, the node starts one, which stays.
func RabbitMQ(ctx context.Context, o Options) (*Server, error) {
	bins, err := find(ctx, rabbitPrograms)
	if err != nil {
		return nil, err
	}
	k := &rabbit{}
	s, err := makeDir(k, o)
	if err != nil {
		return nil, err
	}
	s.bins = bins
	if err := start(ctx, s, func(s *Server) error { return k.configure(s, o.Settings) }); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

type rabbit struct {
	env   []string
	nodes int // the port for other nodes, of which there are none
}

func (r *rabbit) configure(s *Server, settings map[string]string) (err error) {
	if r.nodes, err = FreePort(); err != nil {
		return err
	}
	all := map[string]string{"listeners.tcp.1": s.Addr()}
	maps.Copy(all, settings)
	var b bytes.Buffer
	r.env = nil
	for _, k := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(k, "RABBITMQ_") {
			r.env = append(r.env, k+"="+all[k])
		} else {
			fmt.Fprintf(&b, "%s = %s\n", k, all[k])
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "rabbitmq.conf"), b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write the settings of rabbitmq: %w", err)
	}
	return nil
}

func (*rabbit) name() string { return "rabbitmq" }

func (r *rabbit) command(s *Server) *exec.Cmd {
	cmd := exec.Command(s.bins.path("rabbitmq-server"))
	cmd.Dir = s.dir
	in := func(name string) string { return filepath.Join(s.dir, name) }
	cmd.Env = append(s.bins.env(), "HOME="+s.dir, "RABBITMQ_NODENAME=semel"+strconv.Itoa(s.port)+"@localhost", "RABBITMQ_DIST_PORT="+strconv.Itoa(r.nodes),
		"RABBITMQ_MNESIA_BASE="+s.data(), "RABBITMQ_LOGS=-", "RABBITMQ_LOG_BASE="+in("logs"), "RABBITMQ_CONFIG_FILE="+in("rabbitmq.conf"),
		"RABBITMQ_ADVANCED_CONFIG_FILE="+in("none"), "RABBITMQ_CONF_ENV_FILE="+os.DevNull,
		"RABBITMQ_ENABLED_PLUGINS_FILE="+in("none"), "ERL_EPMD_ADDRESS=127.0.0.1", "ERL_FLAGS=-kernel inet_dist_use_interface {127,0,0,1}")
	cmd.Env = append(cmd.Env, r.env...)
	return cmd
}

func (*rabbit) ready(s *Server) bool { return tryRabbitMQ(context.Background(), s.URL()) == nil }

func (*rabbit) signal(m Mode) syscall.Signal {
	if m == Immediate {
		return syscall.SIGKILL
	}
	return syscall.SIGTERM
}

func (*rabbit) url(s *Server) string { return "amqp://guest:guest@" + s.Addr() + "/" }

// tryRabbitMQ wants that the server begins the handshake of AMQP.
func tryRabbitMQ(_ context.Context, address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	host := u.Host
	if u.Port() == "" {
		host = net.JoinHostPort(host, "5672")
	}
	c, err := net.DialTimeout("tcp", host, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	b := make([]byte, 11)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if !strings.HasPrefix(string(b), "\x01\x00\x00") || !bytes.Equal(b[7:], []byte{0, 10, 0, 10}) { // connection.start
		return fmt.Errorf("%s is no RabbitMQ server", host)
	}
	return nil
}
