package server

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

// The ports that FreePort draws from. Systems give the ports above to connections and to listeners on port 0 (Linux from
// 32768 on, others from 49152).
const (
	firstPort = 10000
	portsEnd  = 32768
)

// FreePort returns a port of 127.0.0.1 on which nothing listens. It is none of those that the system gives out by itself: no
// connection and no listener on port 0 takes it before the caller listens, or while a server of the caller is stopped.
func FreePort() (int, error) {
	end := portsEnd
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		given := 0
		if _, err := fmt.Sscan(string(b), &given); err == nil && given > firstPort {
			end = given
		}
	}
	var err error
	for range 100 {
		port := firstPort + rand.IntN(end-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
