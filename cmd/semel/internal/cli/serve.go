package cli

import (
	"cmp"
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
	grace                                 time.Duration
	retention                             config.Retention
}

func (a *app) serveCommand() *cobra.Command {
	o := serveOptions{maxBody: 1 << 20, grace: 10 * time.Second}
	c := &cobra.Command{
		Use: "serve (--queue URL | --store URL) [--listen ADDR]", Short: "HTTP API: POST /enqueue, and the guard for programs without a worker", Args: noArgs,
		Long: `serve offers POST /enqueue (a JSON body, with Idempotency-Key), the guard (/v1/claim, /v1/extend, /v1/complete,
/v1/release), /metrics (Prometheus), /v1/scale, /livez and /readyz. With --store alone it offers no queue: neither /enqueue nor
/v1/scale. It has no password, so it listens on the loopback address by
default. SIGINT or SIGTERM lets requests in flight end, and exits 0.`,
		Example: `  semel serve --queue 'sqlite:shop.db?queue=orders' --listen 127.0.0.1:8080
  curl -H 'Idempotency-Key: order-7' -d '{"order_id":7}' http://127.0.0.1:8080/enqueue
  curl -d '{"key":"order-7","lease_ms":30000}' http://127.0.0.1:8080/v1/claim`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.queue, "queue", "", "URL of the queue (default: none, with --store)")
	f.StringVar(&o.store, "store", "", "URL of the record store (default: the queue's)")
	f.StringVar(&o.consumer, "consumer", "", "scope of the keys of the guard (default: the name of the queue, else of that in --store)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "address and port; port 0 picks a free one")
	allowHostFlag(c, &o.allow)
	f.Var(&o.maxBody, "max-body", "largest body of a request")
	f.Var(&o.retention, "retention", "how long records of the guard are kept")
	config.DurationVar(f, &o.grace, "grace", "how long requests in flight may take at the end")
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
	if o.store = cmp.Or(o.store, o.queue); o.store == "" {
		return output.Usage("serve needs --queue, or --store for the guard alone").WithHint("--store 'sqlite:orders.db?queue=orders'")
	}
	at, err := open.Parse("store", o.store)
	if err == nil {
		err = at.HasRecords()
	}
	if err != nil {
		return err
	}
	set := open.New(open.Options{})
	defer closing(&err, set)
	s := &api.Server{
		MaxBody: int64(o.maxBody), Retention: o.retention.Of(driver.Completed), Released: o.retention.Of(driver.Released), Log: a.log,
		Hosts: web.NewHosts(o.listen, o.allow),
	}
	reg := processMetrics()
	s.Consumer, s.Metrics = cmp.Or(o.consumer, at.QueueName()), metricsHandler(reg, a.log)
	if o.queue != "" {
		if s.Queue, err = set.Queue(ctx, o.queue); err != nil {
			return err
		}
		s.Consumer = cmp.Or(o.consumer, s.Queue.Features().Name)
	}
	if s.Store, err = set.Store(ctx, o.store); err != nil {
		return err
	}
	if s.Queue != nil {
		if _, err := prom.New(reg, prom.Options{Queue: s.Queue, Store: s.Store, Consumer: s.Consumer}); err != nil {
			return err
		}
	}
	l, err := web.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	if !loopback(host) {
		a.log.Warn("whoever can reach this address may send messages and claim keys: there is no password", "listen", o.listen)
	}
	return a.serveOn(ctx, l, s, o.grace)
}

func (a *app) serveOn(ctx context.Context, l net.Listener, s *api.Server, grace time.Duration) error {
	address := "http://" + l.Addr().String()
	shown := map[string]string{"listening": address}
	if s.Queue != nil {
		shown["queue"] = s.Queue.Features().Name
	}
	if err := a.p.Line(shown, "listening on %s", address); err != nil {
		return err
	}
	return a.serveHTTP(ctx, l, s.Handler(), grace, func() {})
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
