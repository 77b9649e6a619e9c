//go:build unix

package server

import (
	"bytes"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// echo is a server that sends every byte back in upper case.
func echo(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b := make([]byte, 1024)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if _, err := c.Write(bytes.ToUpper(b[:n])); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}

func proxied(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func connect(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// say writes a text and reads a response of the same length.
func say(c net.Conn, what string) (string, error) {
	if _, err := c.Write([]byte(what)); err != nil {
		return "", err
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		return "", err
	}
	b := make([]byte, len(what))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}

// ask sends a request to an address and reads until the response contains a text.
func ask(t *testing.T, addr, request, until string) string {
	t.Helper()
	c := connect(t, addr)
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	b := make([]byte, 1024)
	for !strings.Contains(got.String(), until) {
		n, err := c.Read(b)
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.Write(b[:n])
	}
	return got.String()
}

func TestProxyForwards(t *testing.T) {
	p := proxied(t, echo(t))
	c := connect(t, p.Addr())
	long := strings.Repeat("abc", 100_000)
	go func() { _, _ = c.Write([]byte(long)) }()
	b := make([]byte, len(long))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != strings.ToUpper(long) {
		t.Errorf("the %d bytes were not echoed: %v", len(b), err)
	}
	if p.Conns() != 1 {
		t.Errorf("%d connections", p.Conns())
	}
	c.Close()
	await(t, func() bool { return p.Conns() == 0 })
}

func TestProxyCutsAndRefuses(t *testing.T) {
	p := proxied(t, echo(t))
	c := connect(t, p.Addr())
	if got, err := say(c, "a"); err != nil || got != "A" {
		t.Fatal(got, err)
	}
	p.Refuse(true)
	if got, err := say(c, "b"); err != nil || got != "B" {
		t.Errorf("refusing touched an old connection: %q, %v", got, err)
	}
	if refused, err := net.Dial("tcp", p.Addr()); err == nil {
		if got, err := say(refused, "x"); err == nil {
			t.Errorf("a refused connection echoes %q", got)
		}
		refused.Close()
	}
	if n := p.Cut(); n != 1 {
		t.Errorf("cut %d connections, want 1", n)
	}
	if got, err := say(c, "c"); err == nil {
		t.Errorf("a cut connection echoes %q", got)
	}
	p.Refuse(false)
	if got, err := say(connect(t, p.Addr()), "d"); err != nil || got != "D" {
		t.Errorf("%q, %v after the refusal", got, err)
	}
}

func TestProxyStalls(t *testing.T) {
	p := proxied(t, echo(t))
	c := connect(t, p.Addr())
	for _, d := range []Direction{ToServer, ToClient, ToServer | ToClient} {
		p.Stall(d)
		if _, err := c.Write([]byte("abc")); err != nil {
			t.Fatal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 3)
		if n, err := c.Read(b); err == nil {
			t.Errorf("%d: %q came through", d, b[:n])
		}
		p.Stall(0)
		if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "ABC" {
			t.Errorf("%d: %q, %v after the stall", d, b, err)
		}
	}
	p.Stall(ToServer)
	_, _ = c.Write([]byte("x"))
	p.Cut() // must not wait for the stall
	await(t, func() bool { return p.Conns() == 0 })
}

func TestProxyLosesResponses(t *testing.T) {
	needs(t, "redis")
	s, err := Redis(t.Context(), Options{Settings: map[string]string{"appendonly": "no"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := proxied(t, s.Addr())
	for i, c := range []struct {
		dir            Direction
		pattern, value string
	}{{ToServer, "InCr", "requests"}, {ToClient, ":1\r\n", "responses"}} {
		p.LoseResponses(c.dir, c.pattern, 1)
		conn := connect(t, p.Addr())
		if got, err := say(conn, "PING\r\n"); err != nil || !strings.HasPrefix(got, "+PONG") {
			t.Errorf("%q, %v before the trap", got, err)
		}
		for _, part := range []string{"\nIN", "CR " + c.value + "\r\n"} { // a pattern across two writes
			if _, err := conn.Write([]byte(part)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // lets the parts arrive apart; together they would do as well
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(conn)
		if err == nil || strings.Contains(string(rest), ":1") {
			t.Errorf("%s: the response %q arrived, %v", c.value, rest, err)
		}
		if p.Lost() != i+1 {
			t.Errorf("%s: %d responses lost", c.value, p.Lost())
		}
		// The request was carried out; the next one gets its response.
		if got := ask(t, p.Addr(), "INCR "+c.value+"\r\n", "\r\n"); got != ":2\r\n" {
			t.Errorf("%s: response %q, want 2", c.value, got)
		}
	}
}
