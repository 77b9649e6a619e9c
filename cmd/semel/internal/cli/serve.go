package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/api"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/contrib/prom"
	"github.com/semel-dev/semel/driver"
)

type serveOptions struct {
	queue, store, consumer, listen, allow string
	maxBody                               config.Size
	grace                                 config.Duration
	retention                             config.Retention
}

func (a *app) serveCommand() *cobra.Command {
	o := serveOptions{maxBody: 1 << 20, grace: config.Duration(10 * time.Second)}
	c := &cobra.Command{
		Use: "serve --queue URL [--listen ADDR]", Short: "HTTP API: POST /enqueue, and the guard for programs without a worker", Args: noArgs,
		Long: `serve offers POST /enqueue (a JSON body, with Idempotency-Key), the guard (/v1/claim, /v1/extend, /v1/complete,
/v1/release), /metrics (Prometheus), /v1/scale, /livez and /readyz. It has no password, so it listens on the loopback address by
default. SIGINT or SIGTERM lets requests in flight end, and exits 0.`,
		Example: `  semel serve --queue 'sqlite:shop.db?queue=orders' --listen 127.0.0.1:8080
  curl -H 'Idempotency-Key: order-7' -d '{"order_id":7}' http://127.0.0.1:8080/enqueue
  curl -d '{"key":"order-7","lease_ms":30000}' http://127.0.0.1:8080/v1/claim`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.queue, "queue", "", "URL of the queue")
	f.StringVar(&o.store, "store", "", "URL of the record store (default: the queue's)")
	f.StringVar(&o.consumer, "consumer", "", "scope of the keys of the guard (default: the queue's name)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address and port; port 0 picks a free one")
	allowHostFlag(c, &o.allow)
	f.Var(&o.maxBody, "max-body", "largest body of a request")
	f.Var(&o.retention, "retention", "how long records of the guard are kept")
	f.Var(&o.grace, "grace", "how long requests in flight may take at the end")
	return c
}

// allowHostFlag adds the flag of servers that are reached by a name.
func allowHostFlag(c *cobra.Command, names *string) {
	c.Flags().StringVar(names, "allow-host", "", "further names that clients may call the server by, separated by commas")
}

func (a *app) serve(ctx context.Context, o serveOptions) (err error) {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return output.Usage("--listen %q: %w", o.listen, err).WithHint("--listen 127.0.0.1:8080")
	}
	if o.maxBody < 1 {
		return output.Usage("--max-body must be 1 byte or more")
	}
	if o.store == "" {
		o.store = o.queue
	}
	if _, err := open.Parse("queue", o.queue); err != nil {
		return err
	}
	if err := open.CheckStore(o.store); err != nil {
		return err
	}
	set := open.New(open.Options{})
	defer closing(&err, set)
	queue, err := set.Queue(ctx, o.queue)
	if err != nil {
		return err
	}
	store, err := set.Store(ctx, o.store)
	if err != nil {
		return err
	}
	if o.consumer == "" {
		o.consumer = queue.Features().Name
	}
	l, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	if !loopback(host) {
		a.log.Warn("whoever can reach this address may send messages and claim keys: there is no password", "listen", o.listen)
	}
	reg := processMetrics()
	if _, err := prom.New(reg, prom.Options{Queue: queue, Store: store, Consumer: o.consumer}); err != nil {
		return err
	}
	s := &api.Server{
		Metrics: metricsHandler(reg, a.log),
		Queue:   queue, Store: store, Consumer: o.consumer, MaxBody: int64(o.maxBody), Retention: o.retention.Of(driver.Completed),
		Released: o.retention.Of(driver.Released), Log: a.log,
		Hosts: web.NewHosts(o.listen, o.allow),
	}
	return a.serveOn(ctx, l, s, time.Duration(o.grace))
}

func (a *app) serveOn(ctx context.Context, l net.Listener, s *api.Server, grace time.Duration) error {
	address := "http://" + l.Addr().String()
	if err := a.p.Line(map[string]string{"listening": address, "queue": s.Queue.Features().Name},
		"listening on %s", address); err != nil {
		return err
	}
	return a.serveHTTP(ctx, l, s.Handler(), grace, func() {})
}

// listen opens the address of --listen.
func listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, output.Failed("--listen %s: %w", address, err).WithHint("another port, or :0 for a free one")
	}
	return l, nil
}

// serveHTTP serves until ctx ends. Then it calls stopping, and requests in flight have until grace to end.
func (a *app) serveHTTP(ctx context.Context, l net.Listener, h http.Handler, grace time.Duration, stopping func()) error {
	srv := web.Server(h, a.log)
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(web.Limit(l)) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	stopping()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		return fmt.Errorf("requests under way did not end within %s: %w", grace, errors.Join(err, srv.Close()))
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
