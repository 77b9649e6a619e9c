package edgehttp

import (
	"errors"
	"io"
	"net/http"
)

// body is the body of an answer, whose leash ends with it.
type body struct {
	io.ReadCloser
	l *leash
}

// hold keeps a body on the leash until it was read or closed.
func (l *leash) hold(b io.ReadCloser) io.ReadCloser {
	if b == nil || b == http.NoBody {
		_ = l.end(nil)
		return b
	}
	held := &body{ReadCloser: b, l: l}
	if w, ok := b.(io.Writer); ok { // the connection itself, after 101 Switching Protocols
		return &duplex{body: held, Writer: w}
	}
	return held
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		_ = b.l.end(nil)
	case err != nil:
		err = b.l.end(err)
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	_ = b.l.end(nil)
	return err
}

type duplex struct {
	*body
	io.Writer
}
