package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/console"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/look"
	"github.com/semel-dev/semel/ops"
)

type consoleOptions struct {
	recordFlags
	listen, allow, by string
	operate, bodies   bool
	keep              config.Retention
}

func (a *app) consoleCommand() *cobra.Command {
	o := &consoleOptions{}
	c := &cobra.Command{
		Use: "console --queue URL [--operate]", Short: "Web console: what needs a person, why, and redrives with a canary", Args: noArgs,
		Long: `console serves pages for the operators of one queue: whether something needs a person or is stuck, dead letters by group, what
happened to a key, and the audit log. With --operate it also decides keys whose outcome is unknown, reopens and releases keys, and
redrives or discards dead letters. Each operation is also a command of semel, and leaves the same entry in the audit log.

It prints an address with a token, which signs a browser in; with --operate also one for people who may only look. It listens on the
loopback address unless --listen says otherwise. Whoever has a token may do what it allows: for other machines put the console
behind a proxy with TLS and a login. With --operate, refused requests are in the audit log, too.
It hides bodies and headers of messages unless --bodies is given. Each page is JSON with Accept: application/json.`,
		Example: `  semel console --queue 'sqlite:shop.db?queue=orders'
  semel console --queue 'postgres://shop@db.example.org/shop?queue=orders' --operate --by yui`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.console(cmd.Context(), o, func(p consolePlace) error { return a.p.Line(p, "%s", p) })
		},
	}
	f := c.Flags()
	f.StringVar(&o.queue, "queue", "", "URL of the queue")
	f.StringVar(&o.store, "store", "", "URL of the record store (default: the queue's)")
	f.StringVar(&o.consumer, "consumer", "", "scope of the keys (default: the queue's name)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:7070", "address and port; port 0 picks a free one")
	allowHostFlag(c, &o.allow)
	f.BoolVar(&o.operate, "operate", false, "allow operations; otherwise the console only shows")
	f.BoolVar(&o.bodies, "bodies", false, "show the bodies and headers of messages")
	f.Var(&o.keep, "retention", "how long the records that an operation changes are kept")
	byFlag(c, &o.by)
	return c
}

// console opens the console that the options describe, and serves it until ctx ends. It calls ready with where that is.
func (a *app) console(ctx context.Context, o *consoleOptions, ready func(consolePlace) error) (err error) {
	set := open.New(open.Options{MustExist: true, ReadOnly: !o.operate})
	defer closing(&err, set)
	c, err := a.openConsole(ctx, set, o)
	if err != nil {
		return err
	}
	defer c.Close()
	return a.serveConsole(ctx, c, o, ready)
}

// consolePlace is where a console listens, and the tokens that sign in there.
type consolePlace struct {
	Listening string `json:"listening"`
	Token     string `json:"token"`
	// ViewerToken signs in who may only look; "": nobody may operate, and Token does.
	ViewerToken string `json:"viewer_token,omitempty"`
}

func (p consolePlace) String() string {
	text := "console: " + p.Listening + "/?token=" + p.Token
	if p.ViewerToken != "" {
		text += "\nonly to look: " + p.Listening + "/?token=" + p.ViewerToken
	}
	return text
}

// serveConsole serves a console on o.listen until ctx ends. It calls ready with where that is.
func (a *app) serveConsole(ctx context.Context, c *console.Console, o *consoleOptions, ready func(consolePlace) error) error {
	l, err := web.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	if host, _, _ := net.SplitHostPort(o.listen); !loopback(host) {
		a.log.Warn("whoever reaches this address and has the token may do what the console allows: put a proxy with TLS before it", "listen", o.listen)
	}
	p := consolePlace{Listening: "http://" + l.Addr().String(), Token: strings.ToLower(rand.Text())}
	roles := map[string]string{p.Token: viewer}
	if o.operate {
		p.ViewerToken = strings.ToLower(rand.Text())
		roles = map[string]string{p.Token: operator, p.ViewerToken: viewer}
	}
	if err := ready(p); err != nil {
		return errors.Join(err, l.Close())
	}
	return a.serveHTTP(ctx, l, signedIn(c, roles, web.NewHosts(o.listen, o.allow)), 5*time.Second, func() {})
}

// The roles of who signs in to a console.
const (
	viewer   = "viewer"
	operator = "operator"
)

// openConsole makes a console of a queue and a store that exist.
func (a *app) openConsole(ctx context.Context, set *open.Set, o *consoleOptions) (*console.Console, error) {
	if o.queue == "" {
		return nil, output.Usage("--queue is missing: which queue?")
	}
	if o.store == "" {
		o.store = o.queue
	}
	queue, err := existing(ctx, set, o.queue)
	if err != nil {
		return nil, err
	}
	store, err := set.Store(ctx, o.store)
	if err != nil {
		return nil, err
	}
	w := config.Default()
	w.Queue, w.Store = o.queue, o.store
	var mu sync.Mutex // of set
	return a.newConsole(o, queue, store, func(ctx context.Context) ([]ops.Check, error) {
		mu.Lock()
		defer mu.Unlock()
		x := newInspection(w, queue, store)
		x.durability()
		err := x.servers(ctx, set)
		return x.Facts, err
	})
}

// newConsole makes a console of an open queue and store. checks are those of doctor.
func (a *app) newConsole(
	o *consoleOptions, queue driver.Queue, store driver.Store, checks func(context.Context) ([]ops.Check, error),
) (*console.Console, error) {
	queue = open.WithDeadLetters(queue, store)
	if o.consumer == "" {
		o.consumer = queue.Features().Name
	}
	by := actor(o.by)
	cfg := console.Config{
		Queue: queue, Store: store, Consumer: o.consumer, CLI: commands(o.store, o.queue, scope{}, o.consumer), Checks: checks,
		Keep: func(s driver.State) (time.Duration, error) { return o.keep.For(s, queue.Features().LateBy(0)) },
		By: func(r *http.Request) string {
			if web.Role(r) == operator {
				return by
			}
			return web.Role(r)
		},
		Bodies: o.bodies, Log: a.log,
	}
	if o.operate {
		cfg.Operator = func(r *http.Request) bool { return web.Role(r) == operator }
	}
	c, err := console.New(cfg)
	if err != nil {
		return nil, output.Usage("%w", err)
	}
	return c, nil
}

// signedIn puts the checks of Host and token before a console. roles are by token.
func signedIn(c *console.Console, roles map[string]string, hosts web.Hosts) http.Handler {
	refuse := func(w http.ResponseWriter, r *http.Request, why web.Refusal) {
		look.Headers(w.Header(), "'self'")
		c.Refuse(w, r, why.Status, why.Message)
	}
	return web.Guard(web.SignIn(c, roles, refuse), hosts, refuse)
}

// console serves the console of --console, which only shows, until end is called. checks are those of the worker's start.
func (s *shift) console(ctx context.Context, checks open.Facts) (end func() error, err error) {
	if s.w.Console == "" {
		return func() error { return nil }, nil
	}
	o := &consoleOptions{recordFlags: recordFlags{queue: s.w.Queue, store: s.w.StoreURL()}, listen: s.w.Console, allow: s.w.AllowHost}
	o.consumer = s.w.Consumer
	c, err := s.newConsole(o, s.queue, s.records, func(context.Context) ([]ops.Check, error) { return checks, nil })
	if err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.serveConsole(serving, c, o, func(p consolePlace) error {
			s.p.Notef("%s", p)
			close(started)
			return nil
		})
	}()
	end = func() error {
		stop()
		err := <-ended
		c.Close()
		return err
	}
	select {
	case <-started:
		return end, nil
	case err := <-ended:
		stop()
		return nil, err
	}
}
