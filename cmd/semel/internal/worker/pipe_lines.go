package worker

import (
	"bytes"
	"fmt"
)

// readyLine is the first line that a handler process writes: it reads messages now, and knows this version of the lines.
const readyLine = `{"ready":1}`

// resultLines passes whole lines on.
type resultLines struct {
	buf     []byte
	each    func(line []byte)
	tooLong func()
}

func (l *resultLines) Write(b []byte) (int, error) {
	n := len(b)
	for {
		head, rest, whole := bytes.Cut(b, []byte{'\n'})
		if len(l.buf)+len(head) > longestLine {
			l.buf = nil
			l.tooLong()
			return n, nil
		}
		if !whole {
			l.buf = append(l.buf, head...)
			return n, nil
		}
		if len(l.buf) > 0 {
			head = append(l.buf, head...)
		}
		l.each(head)
		l.buf, b = l.buf[:0], rest
	}
}

func (c *child) tooLong() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.fail(fmt.Errorf("it wrote a line of more than %d bytes", longestLine))
}

// line takes a line that a process wrote. After a mistake nothing more of that process counts.
func (c *child) line(b []byte) {
	if b = bytes.TrimSpace(b); len(b) == 0 {
		return
	}
	c.p.mu.Lock()
	ready, failed := c.ready, c.err != nil
	c.p.mu.Unlock()
	switch {
	case failed:
		return
	case !ready:
		c.first(b)
		return
	}
	results, err := readResults(b)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	for _, r := range results {
		if c.err != nil || !c.settle(r) {
			return
		}
	}
	if err != nil {
		c.fail(fmt.Errorf("it wrote a line that is no result (other output goes to stderr): %w: %s", err, shorten(string(b), 120)))
	}
}

// first takes the first line.
func (c *child) first(b []byte) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if string(bytes.ReplaceAll(b, []byte{' '}, nil)) != readyLine {
		c.fail(fmt.Errorf("its first line must be %s, and is: %s", readyLine, shorten(string(b), 120)))
		return
	}
	c.ready = true
	c.p.ready, c.p.broken = true, 0
	close(c.up)
	if !c.ended {
		c.p.children = append(c.p.children, c)
		c.p.place()
	}
}

// settle ends the run that a result is of.
func (c *child) settle(r *resultLine) bool {
	l := c.lines[r.ID]
	if l == nil || !l.run[r.ID].sent {
		c.fail(fmt.Errorf("it wrote a result of message %d, which it does not have: a second result, or a wrong id", r.ID))
		return false
	}
	run := l.run[r.ID]
	delete(c.lines, r.ID)
	delete(l.run, r.ID)
	run.finish(r, nil)
	c.settled++
	if l.left--; l.left == 0 {
		if c.load--; c.load == 0 {
			c.alone = false
		}
		c.p.place()
	}
	return true
}
