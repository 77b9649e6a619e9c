package front

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"slices"
	"time"
)

// This file is the stored form of a filter: a header, the generations, and a checksum of both. All numbers are
// little-endian.

// ErrFilterDamaged reports a stored filter that is cut short, altered, or of another form.
var ErrFilterDamaged = errors.New("stored filter is damaged, or of another form")

var filterMagic = [8]byte{'s', 'e', 'm', 'e', 'l', 'b', 'f', 1}

var filterSums = crc64.MakeTable(crc64.ECMA)

type filterHeader struct {
	Magic                              [8]byte
	Ready                              uint64
	Blocks, Probes, Span, Count, Bytes uint64
	// At is the last moment that the filter covers.
	At int64
}

// Write stores the filter. Whoever reads it back must know that nothing was added since: keys that were would be called
// certainly unknown. So it is written when the memory behind it is closed, and removed or read (Read takes the reader's
// word for it) when that is opened. It writes a copy: callers are not blocked.
func (f *Filter) Write(w io.Writer) error {
	f.mu.Lock()
	f.rotate()
	h := filterHeader{
		Magic: filterMagic, Blocks: f.blocks, Probes: uint64(f.probes), Span: uint64(f.o.Span), Count: uint64(len(f.gens)),
		At: f.o.Now().UnixNano(),
	}
	if f.ready {
		h.Ready = 1
	}
	gens := make([]generation, len(f.gens))
	for i, g := range f.gens {
		gens[i] = generation{g.from, slices.Clone(g.bits)}
	}
	f.mu.Unlock()
	h.Bytes = uint64(len(gens)) * f.blocks * blockWords * 8

	sum := crc64.New(filterSums)
	out := bufio.NewWriter(w)
	both := io.MultiWriter(out, sum)
	err := binary.Write(both, binary.LittleEndian, &h)
	for i := range gens {
		err = errors.Join(err, binary.Write(both, binary.LittleEndian, gens[i].from),
			binary.Write(both, binary.LittleEndian, gens[i].bits))
	}
	err = errors.Join(err, binary.Write(out, binary.LittleEndian, sum.Sum64()), out.Flush())
	if err != nil {
		return fmt.Errorf("write the filter: %w", err)
	}
	return nil
}

// Read takes over what Write stored, and what was added since this filter was made stays. since is when the memory behind
// the filter was written last: a stored filter that is older than that, or was not ready itself, leaves this one as it was.
// Filters of another size, span or form, and damaged ones, are refused (ErrFilterDamaged). After any error the filter is
// as unready as before: Fill it.
func (f *Filter) Read(r io.Reader, since time.Time) error {
	in := bufio.NewReader(r)
	var head [64]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return fmt.Errorf("read the filter's header: %w: %w", ErrFilterDamaged, err)
	}
	var h filterHeader
	if err := binary.Read(bytes.NewReader(head[:]), binary.LittleEndian, &h); err != nil {
		return fmt.Errorf("read the filter's header: %w: %w", ErrFilterDamaged, err)
	}
	switch {
	case h.Magic != filterMagic:
		return fmt.Errorf("read the filter: %w", ErrFilterDamaged)
	case h.Blocks != f.blocks || h.Probes != uint64(f.probes) || h.Span != uint64(f.o.Span) || h.Count < 1 ||
		h.Count > uint64(f.o.Generations) || h.Bytes != h.Count*f.blocks*blockWords*8:
		return fmt.Errorf("read the filter: it was made with other options: %w", ErrFilterDamaged)
	}
	sum := crc64.New(filterSums)
	_, _ = sum.Write(head[:]) // never fails
	gens := make([]generation, h.Count)
	words := make([]byte, 8+f.blocks*blockWords*8)
	for i := range gens {
		if _, err := io.ReadFull(in, words); err != nil {
			return fmt.Errorf("read generation %d of the filter: %w: %w", i, ErrFilterDamaged, err)
		}
		_, _ = sum.Write(words)
		gens[i] = f.open(int64(binary.LittleEndian.Uint64(words)))
		for j := range gens[i].bits {
			gens[i].bits[j] = binary.LittleEndian.Uint64(words[8+8*j:])
		}
	}
	var stored [8]byte
	if _, err := io.ReadFull(in, stored[:]); err != nil || binary.LittleEndian.Uint64(stored[:]) != sum.Sum64() {
		return fmt.Errorf("read the filter: its checksum is another: %w", ErrFilterDamaged)
	}
	if h.Ready == 0 || h.At < since.UnixNano() {
		return fmt.Errorf("read the filter: it does not cover what was written at %v: fill it", since.UTC())
	}
	f.join(gens)
	return nil
}

// join puts stored generations to those that are there.
func (f *Filter) join(gens []generation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rotate()
	oldest := f.gens[0].from - int64(f.o.Generations) + 1
	for _, g := range gens {
		if g.from < oldest {
			continue // its time is over
		}
		mine := f.at(g.from)
		for i := range mine.bits {
			mine.bits[i] |= g.bits[i]
		}
	}
	f.ready = true
}
