package server

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is one of the two directions of a connection.
type Direction uint8

// The directions; ToServer|ToClient is both.
const (
	// ToServer carries requests.
	ToServer Direction = 1 << iota
	// ToClient carries responses.
	ToClient
)

// responseWait is how long the connection stays open after a request whose response is lost.
const responseWait = 50 * time.Millisecond

// Proxy forwards TCP connections to a server, and misbehaves on demand. Its methods may be called at any time, from
// several goroutines.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	target  string
	changed *sync.Cond // stalled, conns or closed changed
	conns   map[*link]struct{}
	refuse  bool
	stalled Direction
	closed  bool
	trap    trap
	sprung  int
}

// trap waits for bytes whose response is to be lost.
type trap struct {
	dir     Direction
	pattern []byte // lower case
	left    int
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	muted          bool // responses are dropped from now on
	ended          int  // directions that came to their end
	cut            bool
}

// NewProxy listens on a free loopback port and forwards to target (host:port).
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for a proxy: %w", err)
	}
	p := &Proxy{target: target, listener: l, conns: map[*link]struct{}{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is host and port, for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts all connections and ends the proxy.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut()
	p.wg.Wait()
	return err
}

// Cut resets all connections and returns how many there were. What was under way in them is lost.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.conns)
	for c := range p.conns {
		p.cut(c)
	}
	return n
}

// cut needs the lock. Both sides see a reset.
func (p *Proxy) cut(c *link) {
	for _, side := range []net.Conn{c.client, c.server} {
		_ = side.(*net.TCPConn).SetLinger(0) // makes a reset of the close
	}
	p.leave(c)
}

// leave needs the lock.
func (p *Proxy) leave(c *link) {
	c.cut = true
	_ = c.client.Close()
	_ = c.server.Close()
	delete(p.conns, c)
	p.changed.Broadcast()
}

// Forward sends connections that are accepted from now on to another server, as a virtual address does after a failover.
func (p *Proxy) Forward(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Refuse makes new connections end as soon as they are made, until it is called with false. Those that exist go on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Stall holds all bytes of the directions back: nothing is lost and nothing arrives, as with a network that drops
// packets. Stall(0) lets them flow again.
func (p *Proxy) Stall(d Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = d
	p.changed.Broadcast()
}

// LoseResponses loses the responses to the next n requests that match: the request reaches the server, the client gets no
// byte of the response, and a moment later the connection is reset. Upper and lower case are the same.
//
// With ToServer the pattern is looked for in requests ("commit"). The server may or may not have carried them out before
// the reset. With ToClient the pattern is looked for in responses, which are dropped from there on: the server has carried
// out what the response confirms ("COMMIT\x00", the tag of PostgreSQL). A client that names prepared statements sends
// their text only once, so use ToClient to find its commits.
func (p *Proxy) LoseResponses(d Direction, pattern string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trap = trap{dir: d, pattern: bytes.ToLower([]byte(pattern)), left: n}
}

// Lost returns how many responses were lost so far.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sprung
}

// Conns is how many connections there are.
func (p *Proxy) Conns() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.DialTimeout("tcp", target, 10*time.Second)
	if err != nil {
		_ = client.(*net.TCPConn).SetLinger(0)
		_ = client.Close()
		return
	}
	c := &link{client: client, server: server}
	p.mu.Lock()
	p.conns[c] = struct{}{}
	if p.refuse || p.closed {
		p.cut(c)
	}
	p.mu.Unlock()
	p.wg.Go(func() { p.pump(c, server, client, ToClient) })
	p.pump(c, client, server, ToServer)
}

// pump carries one direction until an end of it is closed. An orderly close is passed on as one.
func (p *Proxy) pump(c *link, from, to net.Conn, d Direction) {
	buf := make([]byte, 64<<10)
	var before []byte // the end of what came before: a pattern may lie across two reads
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !p.pass(c, before, buf[:n], d) {
				continue // dropped
			}
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
			before = append(before[:0], buf[max(0, n-128):n]...)
		}
		if err != nil {
			p.end(c, to)
			return
		}
	}
}

// end passes the end of one direction on; the second takes the connection away, without a reset: bytes may be under way.
func (p *Proxy) end(c *link, to net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.cut {
		return
	}
	if c.ended++; c.ended == 1 {
		_ = to.(*net.TCPConn).CloseWrite() // fails when the other side is gone already: then its direction ends too
		return
	}
	p.leave(c)
}

// pass holds bytes while their direction is stalled, springs the trap, and reports whether they are forwarded.
func (p *Proxy) pass(c *link, before, b []byte, d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stalled&d != 0 && !c.cut && !p.closed {
		p.changed.Wait()
	}
	if c.cut || d == ToClient && c.muted {
		return false
	}
	t := &p.trap
	if t.left == 0 || t.dir != d || c.muted {
		return true
	}
	before = before[max(0, len(before)-len(t.pattern)+1):] // a pattern that is all in it has passed
	if !bytes.Contains(bytes.ToLower(append(bytes.Clone(before), b...)), t.pattern) {
		return true
	}
	t.left--
	p.sprung++
	c.muted = true
	time.AfterFunc(responseWait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !c.cut {
			p.cut(c)
		}
	})
	return d == ToServer
}
