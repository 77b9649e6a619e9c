package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/emf"
	"github.com/semel-dev/semel/cmd/semel/internal/api"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/contrib/prom"
)

// window is how a worker shows what it does: a port of its own (--listen), lines for CloudWatch (--emf). It is closed by
// whoever opened it.
type window struct {
	listener net.Listener
	server   *http.Server
	metrics  *prom.Metrics
	embedded *emf.Writer
	file     io.Closer
	log      *slog.Logger
}

// processMetrics are a registry with the figures that every Go program has.
func processMetrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

func metricsHandler(reg *prometheus.Registry, log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	})
}

// open opens what the settings ask for and adds its observers to cfg. Everything is opened before the consumer is made: a port
// that is taken stops the worker before it took a message.
func (s *shift) openWindow(ctx context.Context, cfg *semel.Config) (_ *window, err error) {
	w := &window{log: s.log}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if s.w.EMF != "" {
		out := io.Writer(output.NewSafe(os.Stdout))
		if s.w.EMF != "-" {
			f, err := output.AppendFile(s.w.EMF)
			if err != nil {
				return nil, output.Usage("--emf: %w", err).WithHint("a file that can be written, or - for stdout")
			}
			out, w.file = f, f
		}
		if w.embedded, err = emf.New(out, emf.Options{Queue: s.queue, Store: s.store, Consumer: s.w.Consumer}); err != nil {
			return nil, err
		}
		cfg.Events = semel.Tee(cfg.Events, w.embedded.Events())
	}
	if s.w.Listen == "" {
		return w, nil
	}
	if w.listener, err = web.Listen(ctx, s.w.Listen); err != nil {
		return nil, err
	}
	if host, _, _ := net.SplitHostPort(s.w.Listen); !loopback(host) {
		s.log.Warn("whoever can reach this address sees the worker's figures: there is no password", "listen", s.w.Listen)
	}
	reg := processMetrics()
	w.metrics, err = prom.New(reg, prom.Options{Queue: s.queue, Store: s.store, Consumer: s.w.Consumer})
	if err != nil {
		return nil, err
	}
	cfg.Events = semel.Tee(cfg.Events, w.metrics.Events())
	shown := &api.Server{
		Queue: s.queue, Store: s.store, Consumer: s.w.Consumer, ReadOnly: true, Metrics: metricsHandler(reg, s.log), Log: s.log,
		Hosts: web.NewHosts(s.w.Listen, s.w.AllowHost),
	}
	w.server = web.Server(shown.Handler(), s.log)
	return w, nil
}

// watch shows a consumer until ctx is done.
func (w *window) watch(ctx context.Context, c *semel.Consumer) {
	var lines chan error
	if w.embedded != nil {
		w.embedded.Watch(c)
		lines = make(chan error, 1)
		go func() { lines <- w.embedded.Run(ctx) }()
	}
	if w.server != nil {
		w.metrics.Watch(c)
		w.log.Info("showing /metrics, /v1/scale, /livez, /readyz", "listen", "http://"+w.listener.Addr().String())
		ended := make(chan error, 1)
		go func() { ended <- w.server.Serve(web.Limit(w.listener)) }()
		select {
		case err := <-ended:
			w.log.Warn("the worker's figures are not shown any more", "err", err)
			<-ctx.Done()
		case <-ctx.Done():
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			_ = w.server.Shutdown(stop) // a scrape that takes longer is cut off
			cancel()
			_ = w.server.Close()
			<-ended //nolint:errcheck // http.ErrServerClosed
		}
	}
	if lines != nil {
		if err := <-lines; err != nil {
			w.log.Warn("the last figures were not written", "err", err)
		}
	}
}

// on tells that there is anything to show.
func (w *window) on() bool { return w.server != nil || w.embedded != nil }

// Close lets go of port and file.
func (w *window) Close() error {
	var errs []error
	if w.listener != nil {
		if err := w.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close the worker's port: %w", err))
		}
	}
	if w.file != nil {
		errs = append(errs, w.file.Close())
	}
	return errors.Join(errs...)
}

// summary is the output of a worker at its end.
type summary struct {
	semel.Summary
	// LentKeys counts deliveries without a key of --key that took that of --on-missing-key id.
	LentKeys int64 `json:"lent_keys,omitempty"`
}

// report prints the summary.
func (s *shift) report(sum semel.Summary) error {
	lent := s.lent.n.Load()
	return s.p.Object(summary{sum, lent}, func(b *strings.Builder) {
		fmt.Fprintf(b, "received %d, effects %d", sum.Received, sum.Effects)
		for _, c := range []struct {
			what string
			n    int64
		}{
			{"replayed", sum.Replayed}, {"stale", sum.Stale}, {"retried", sum.Retried}, {"dead", sum.Dead}, {"uncertain", sum.Uncertain},
			{"dropped", sum.Dropped}, {"mismatched", sum.Mismatched}, {"busy", sum.Busy}, {"taken over", sum.TakenOver},
			{"fenced", sum.Fenced}, {"rejected", sum.Rejected}, {"keys lent", lent},
			{"replayed with another payload", sum.OtherPayload}, {"cache hits", sum.CacheHits},
		} {
			if c.n > 0 {
				fmt.Fprintf(b, ", %s %d", c.what, c.n)
			}
		}
		fmt.Fprintf(b, ", in %s\n", time.Since(s.began).Round(time.Millisecond))
	})
}

// guarantee is the sentence about effects, and where to read what it rests on; with --verbose all of it.
func (s *shift) guarantee(p semel.Guarantees) string {
	if s.verbose {
		return p.String()
	}
	kept := ""
	if !p.Durable {
		kept = " Messages or records can be lost."
	}
	return fmt.Sprintf("%s%s (more: semel doctor, https://github.com/semel-dev/semel#what-is-guaranteed)", p.Effects, kept)
}
