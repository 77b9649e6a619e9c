package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/semel-dev/semel/cmd/semel/internal/api"
	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/cmd/semel/internal/web"
	"github.com/semel-dev/semel/driver"
)

type extensionOptions struct {
	store, consumer, listen string
	retention               config.Retention
}

// extensionGrace is how long requests in flight may take at the end: Lambda kills an extension two seconds after SHUTDOWN.
const extensionGrace = time.Second

func (a *app) extensionCommand() *cobra.Command {
	var o extensionOptions
	c := &cobra.Command{
		Use: "extension --store URL", Short: "The guard as an extension of AWS Lambda, for functions in any language", Args: noArgs,
		Long: `extension serves the guard (/v1/claim and so on) to a function in the same environment of AWS Lambda, on its loopback
address. A layer has this program and the file extensions/semel, which starts it (docs/lambda.md). It registers for SHUTDOWN alone,
so it adds nothing to an invocation but its own requests.`,
		Example: `  semel extension --store 'dynamodb://idempotency?region=eu-west-1'`,
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.extension(cmd.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.store, "store", "", "URL of the record store")
	f.StringVar(&o.consumer, "consumer", os.Getenv("AWS_LAMBDA_FUNCTION_NAME"), "scope of the keys (default: the function's name)")
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "loopback address and port; port 0 picks a free one")
	f.Var(&o.retention, "retention", "how long records are kept")
	return c
}

func (a *app) extension(ctx context.Context, o extensionOptions) (err error) {
	l := lambdaAPI{host: os.Getenv("AWS_LAMBDA_RUNTIME_API")}
	switch {
	case l.host == "":
		return output.Usage("AWS_LAMBDA_RUNTIME_API is not set: this command runs in AWS Lambda").WithHint("semel serve, elsewhere")
	case o.consumer == "":
		return output.Usage("extension needs --consumer, because AWS_LAMBDA_FUNCTION_NAME is not set")
	}
	if err := open.CheckStore(o.store); err != nil {
		return err
	}
	set := open.New(open.Options{})
	defer closing(&err, set)
	store, err := set.Store(ctx, o.store)
	if err != nil {
		return err
	}
	listener, err := web.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	s := &api.Server{
		Store: store, Consumer: o.consumer, MaxBody: 6 << 20, Retention: o.retention.Of(driver.Completed),
		Released: o.retention.Of(driver.Released), Log: a.log, Hosts: web.NewHosts(o.listen, ""),
	}
	if err := a.p.Line(map[string]string{"listening": "http://" + listener.Addr().String()}, "listening on http://%s", listener.Addr()); err != nil {
		return err
	}
	if err := l.register(ctx); err != nil {
		return errors.Join(output.Failed("register the extension: %w", err).WithHint("the file in /opt/extensions must have the name semel"),
			listener.Close())
	}
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() { stop(l.shutdown(serving)) }()
	if err := a.serveHTTP(serving, listener, s.Handler(), extensionGrace, func() {}); err != nil {
		return err
	}
	if cause := context.Cause(serving); !errors.Is(cause, errShutdown) && ctx.Err() == nil {
		return cause
	}
	return nil
}

// errShutdown is the end of the environment.
var errShutdown = errors.New("the environment shuts down")

// lambdaAPI is the Extensions API of AWS Lambda, 2020-01-01
// (https://docs.aws.amazon.com/lambda/latest/dg/runtimes-extensions-api.html).
type lambdaAPI struct{ host, id string }

func (l *lambdaAPI) register(ctx context.Context) error {
	header, _, err := l.call(ctx, http.MethodPost, "register", "Lambda-Extension-Name", "semel", map[string]any{"events": []string{"SHUTDOWN"}})
	if err != nil {
		return err
	}
	if l.id = header.Get("Lambda-Extension-Identifier"); l.id == "" {
		return errors.New("the response has no Lambda-Extension-Identifier")
	}
	return nil
}

// shutdown waits for the event, which also reports that the extension is ready, and returns errShutdown.
func (l *lambdaAPI) shutdown(ctx context.Context) error {
	_, body, err := l.call(ctx, http.MethodGet, "event/next", "Lambda-Extension-Identifier", l.id, nil)
	if err != nil {
		return fmt.Errorf("wait for the next event: %w", err)
	}
	var event struct {
		EventType string `json:"eventType"`
	}
	if err := json.Unmarshal(body, &event); err != nil || event.EventType != "SHUTDOWN" {
		return fmt.Errorf("the next event is no SHUTDOWN: %.200s", body)
	}
	return errShutdown
}

func (l *lambdaAPI) call(ctx context.Context, method, path, header, value string, body any) (http.Header, []byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+l.host+"/2020-01-01/extension/"+path, bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set(header, value)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req) // without a timeout: the next event may be hours away
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err == nil && (res.StatusCode < 200 || res.StatusCode > 299) {
		err = fmt.Errorf("response %s: %.200s", res.Status, got)
	}
	return res.Header, got, err
}
