package place

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakedynamodb"
	"github.com/semel-dev/semel/adapters/aws/awstest/fakesqs"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
)

const (
	fakeRegion = awstest.Region
	// fakeStale is how many of the eventually consistent reads see what was there before the last write, fakeStaleFor how
	// long after it.
	fakeStale    = 0.2
	fakeStaleFor = 200 * time.Millisecond
)

// fakes are SQS and DynamoDB on one socket of the loopback interface.
type fakes struct {
	url    string
	server *http.Server
	ended  chan struct{}
}

// startFakes starts both services, as weak as the real ones: standard queues have no order, and reads that need not be
// consistent are not.
func startFakes(seed uint64) (*fakes, error) {
	queues := fakesqs.New(fakesqs.Options{Disorder: max(seed, 1)})
	tables := fakedynamodb.New(fakedynamodb.Options{Stale: fakeStale, StaleFor: fakeStaleFor, Seed: seed})
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start SQS and DynamoDB on a port of this machine: %w", err)
	}
	f := &fakes{url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	both := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AmazonSQS.") {
			queues.ServeHTTP(w, r)
			return
		}
		tables.ServeHTTP(w, r)
	})
	f.server = web.Server(web.Guard(both, web.Hosts{}, func(w http.ResponseWriter, _ *http.Request, why web.Refusal) {
		http.Error(w, why.Message, why.Status)
	}), nil)
	go func() {
		defer close(f.ended)
		_ = f.server.Serve(web.Limit(listener)) // until close
	}()
	return f, nil
}

// close ends the services, and requests that are on their way.
func (f *fakes) close() error {
	err := f.server.Close()
	<-f.ended
	return err
}
