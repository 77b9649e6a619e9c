package process

import (
	"bytes"
	"strings"
	"sync"
)

// Output collects what processes write: give it to a command as Stdout, Stderr or both. The zero value keeps everything.
// Several processes may share one.
type Output struct {
	// Keep is how many bytes at the end are kept. 0: all.
	Keep int
	// Each gets every line without its end, in order, one call at a time. A line that no newline ends is not passed.
	Each func(line string)

	mu   sync.Mutex
	b    []byte
	cut  int           // bytes that are not kept any more
	read int           // bytes whose lines went to Each
	more chan struct{} // closed by the next Write
}

// Write adds to the output. It never fails.
func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = append(o.b, b...)
	for o.Each != nil {
		line, _, ok := bytes.Cut(o.b[o.read-o.cut:], []byte{'\n'})
		if !ok {
			break
		}
		o.read += len(line) + 1
		o.Each(strings.TrimSuffix(string(line), "\r"))
	}
	over := len(o.b) - o.Keep
	if o.Each != nil {
		over = min(over, o.read-o.cut) // what is not passed yet stays
	}
	if o.Keep > 0 && over > 0 {
		o.b = append(o.b[:0], o.b[over:]...)
		o.cut += over
	}
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return len(b), nil
}

// String is what is kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.b)
}

// find returns the first matching line that ends after the offset at, or where to go on when more is closed.
func (o *Output) find(at int, match func(string) bool) (found string, next int, more <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	at = max(at, o.cut)
	for {
		line, _, ok := bytes.Cut(o.b[at-o.cut:], []byte{'\n'})
		if !ok {
			break
		}
		if at += len(line) + 1; match(string(line)) {
			return string(line), at, nil
		}
	}
	if o.more == nil {
		o.more = make(chan struct{})
	}
	return "", at, o.more
}
