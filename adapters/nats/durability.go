package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/semel-dev/semel/driver"
)

// syncInfo is how the server brings to disk what it acknowledged.
type syncInfo struct {
	Always bool          `json:"sync_always"`
	Every  time.Duration `json:"sync_interval"`
	known  bool
}

// readSync asks the monitoring port of the server that the connection leads to.
func readSync(ctx context.Context, nc *nats.Conn, o Options) syncInfo {
	s := syncInfo{Always: o.SyncAlways, known: o.SyncAlways}
	if o.Monitor != "" {
		ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
		defer cancel()
		if err := s.ask(ctx, strings.TrimSuffix(o.Monitor, "/")+"/varz", nc.ConnectedServerId()); err != nil {
			o.Logger.Warn("how often the NATS server syncs could not be read", "err", err)
		}
	}
	if s.Every <= 0 { // servers before 2.10 do not report it
		s.Every = 2 * time.Minute
	}
	return s
}

// ask reads what the server with the given ID says of itself.
func (s *syncInfo) ask(ctx context.Context, url, server string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var v struct {
		ID        string                     `json:"server_id"`
		JetStream struct{ Config *syncInfo } `json:"jetstream"`
	}
	switch err = json.NewDecoder(res.Body).Decode(&v); {
	case err != nil || v.JetStream.Config == nil:
		return fmt.Errorf("%s responded %s, which is not what a NATS server with JetStream says of itself", url, res.Status)
	case v.ID != server:
		return fmt.Errorf("%s is another server than the one that is connected (%s)", url, server)
	}
	*s = *v.JetStream.Config
	s.known = true
	return nil
}

// durability is what the queue says of acknowledged messages.
func durability(is *settings, s syncInfo) (durable bool, caveats []string) {
	if is.stream.Storage == jetstream.MemoryStorage {
		return false, []string{fmt.Sprintf("stream %s is in the memory of its servers: they lose it when they stop", is.stream.Name)}
	}
	if s.Always {
		return true, nil
	}
	text := fmt.Sprintf("NATS acknowledges messages before it has written them to disk, which it does every %s (sync_interval)",
		driver.DurationText(s.Every))
	if !s.known {
		text += ", as far as can be seen from here (monitor= in the URL shows it)"
	}
	if is.stream.Replicas >= 3 {
		return true, []string{text + fmt.Sprintf(": those of that time are lost if most of the %d replicas fail at once", is.stream.Replicas)}
	}
	return false, []string{text + ": those of that time are lost if its machine fails; sync_interval: always keeps them"}
}
