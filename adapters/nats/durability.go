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

// defaultSync is the sync_interval of a server whose configuration says nothing.
const defaultSync = 2 * time.Minute

// syncInfo is how the server brings to disk what it acknowledged.
type syncInfo struct {
	always bool
	// every is the interval; known: the server said so.
	every time.Duration
	known bool
	// err is why it is not known.
	err error
}

// readSync asks the monitoring port of the server that the connection leads to.
func readSync(ctx context.Context, nc *nats.Conn, o Options) syncInfo {
	s := syncInfo{always: o.SyncAlways, every: defaultSync, known: o.SyncAlways}
	if o.Monitor == "" {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, o.CallTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.Monitor, "/")+"/varz", nil)
	if err != nil {
		s.err = err
		return s
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.err = err
		return s
	}
	defer res.Body.Close()
	var v struct {
		ID        string `json:"server_id"`
		JetStream struct {
			Config *struct {
				Every  time.Duration `json:"sync_interval"`
				Always bool          `json:"sync_always"`
			} `json:"config"`
		} `json:"jetstream"`
	}
	err = json.NewDecoder(res.Body).Decode(&v)
	switch {
	case err != nil || res.StatusCode != http.StatusOK || v.ID == "":
		s.err = fmt.Errorf("%s responded %s, which is not what a NATS server says of itself", o.Monitor, res.Status)
	case v.ID != nc.ConnectedServerId():
		s.err = fmt.Errorf("%s is another server than the one that is connected (%s)", o.Monitor, nc.ConnectedServerName())
	case v.JetStream.Config == nil:
		s.err = fmt.Errorf("%s says nothing of JetStream", o.Monitor)
	default:
		s.known, s.always = true, v.JetStream.Config.Always
		if v.JetStream.Config.Every > 0 { // servers before 2.10 do not say it
			s.every = v.JetStream.Config.Every
		}
	}
	return s
}

// durability is what the queue says of acknowledged messages.
func durability(is *settings, s syncInfo) (durable bool, caveats []string) {
	if is.stream.Storage == jetstream.MemoryStorage {
		return false, []string{fmt.Sprintf("stream %s is in the memory of its servers: they lose it when they stop", is.stream.Name)}
	}
	if s.always {
		return true, nil
	}
	text := fmt.Sprintf("NATS acknowledges messages before it has written them to disk, which it does every %s (sync_interval)",
		driver.DurationText(s.every))
	if !s.known {
		text += ", as far as can be seen from here (monitor= in the URL shows it)"
	}
	if is.stream.Replicas >= 3 {
		return true, []string{text + fmt.Sprintf(": those of that time are lost if most of the %d replicas fail at once", is.stream.Replicas)}
	}
	return false, []string{text + ": those of that time are lost if its machine fails; sync_interval: always keeps them"}
}
