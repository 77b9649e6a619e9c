package adapter

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// journal is an append-only file: the "server" of this example. Each frame is a length, a checksum and a gob of entries.
type journal[T any] struct {
	f      *os.File
	size   int64
	broken error
}

// openJournal calls each for every entry that is in the file. A frame that a crash cut off is removed: its append never
// returned, so no caller relies on it.
func openJournal[T any](path string, each func(T)) (*journal[T], error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal[T]{f: f}
	if err := j.read(each); err != nil {
		return nil, errors.Join(fmt.Errorf("read journal %s: %w", path, err), f.Close())
	}
	return j, nil
}

func (j *journal[T]) read(each func(T)) error {
	all, err := io.ReadAll(j.f)
	if err != nil {
		return err
	}
	for rest := all; len(rest) >= 8; {
		n, sum := binary.BigEndian.Uint32(rest), binary.BigEndian.Uint32(rest[4:])
		if int(n) > len(rest)-8 || crc32.ChecksumIEEE(rest[8:8+n]) != sum {
			break
		}
		var entries []T
		if err := gob.NewDecoder(bytes.NewReader(rest[8 : 8+n])).Decode(&entries); err != nil {
			return fmt.Errorf("frame at byte %d: %w", j.size, err)
		}
		for _, e := range entries {
			each(e)
		}
		rest, j.size = rest[8+n:], j.size+8+int64(n)
	}
	return j.f.Truncate(j.size)
}

// append writes entries as one frame, all or none, and returns after they are on disk. After an error it is unknown whether
// they are; no further entry is taken, because the next one could stand behind a hole. Reopen the file then.
func (j *journal[T]) append(entries ...T) error {
	if j.broken != nil || len(entries) == 0 {
		return j.broken
	}
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	if err := gob.NewEncoder(&b).Encode(entries); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	frame := b.Bytes()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-8))
	binary.BigEndian.PutUint32(frame[4:], crc32.ChecksumIEEE(frame[8:]))
	_, err := j.f.WriteAt(frame, j.size)
	if err == nil {
		err = j.f.Sync()
	}
	if err != nil {
		j.broken = fmt.Errorf("journal %s is closed after a failed write: %w", j.f.Name(), err)
		return j.broken
	}
	j.size += int64(len(frame))
	return nil
}

func (j *journal[T]) close() error { return j.f.Close() }
