package cli

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/console"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/look"
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

It prints an address with a token, which signs a browser in. It listens on the loopback address unless --listen says otherwise. Who
has the token may do whatever the console allows: for other machines put it behind a proxy with TLS and a login.
It hides bodies and headers of messages unless --bodies is given. Each page is JSON with Accept: application/json.`,
		Example: `  semel console --queue 'sqlite:shop.db?queue=orders'
  semel console --queue 'postgres://shop@db.example.org/shop?queue=orders' --operate --by yui`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context(), o) },
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

func (a *app) console(ctx context.Context, o *consoleOptions) (err error) {
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return output.Usage("--listen %q: %w", o.listen, err).WithHint("--listen 127.0.0.1:7070")
	}
	set := open.New(open.Options{MustExist: true, ReadOnly: !o.operate})
	defer closing(&err, set)
	c, err := a.openConsole(ctx, set, o)
	if err != nil {
		return err
	}
	defer c.Close()
	l, err := listen(ctx, o.listen)
	if err != nil {
		return err
	}
	token := strings.ToLower(rand.Text())
	if !loopback(host) {
		a.log.Warn("whoever reaches this address and has the token may do what the console allows: put a proxy with TLS before it", "listen", o.listen)
	}
	address := "http://" + l.Addr().String()
	if err := a.p.Line(map[string]string{"listening": address, "token": token}, "console: %s/?token=%s", address, token); err != nil {
		return err
	}
	return a.serveHTTP(ctx, l, signedIn(c, token, web.NewHosts(o.listen, o.allow)), 5*time.Second, func() {})
}

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
	queue = open.WithDeadLetters(queue, store)
	if o.consumer == "" {
		o.consumer = queue.Features().Name
	}
	by := actor(o.by)
	c, err := console.New(console.Config{
		Queue: queue, Store: store, Consumer: o.consumer, CLI: commands(o.store, o.queue, scope{}, o.consumer),
		Keep: func(s driver.State) (time.Duration, error) { return o.keep.For(s, queue.Features().LateBy(0)) },
		By:   func(*http.Request) string { return by }, Operate: o.operate, Bodies: o.bodies, Log: a.log,
	})
	if err != nil {
		return nil, output.Usage("%w", err)
	}
	return c, nil
}

// signedIn puts the checks of Host and token before a console.
func signedIn(c *console.Console, token string, hosts web.Hosts) http.Handler {
	refuse := func(w http.ResponseWriter, r *http.Request, why web.Refusal) {
		look.Headers(w.Header(), "'self'")
		c.Refuse(w, r, why.Status, why.Message)
	}
	return web.Guard(web.SignIn(c, token, refuse), hosts, refuse)
}
