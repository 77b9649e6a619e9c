package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/semel-dev/semel"
)

// Prober asks the outside world whether the effect of a key happened.
type Prober interface {
	// Probe returns the result if the effect happened, and an error if that is unknown.
	Probe(ctx context.Context, a *semel.Attempt) (found semel.ProbeResult, result []byte, err error)
}

func ask(ctx context.Context, p Prober, a *semel.Attempt) (semel.ProbeResult, error) {
	found, result, err := p.Probe(ctx, a)
	if found == semel.ProbeApplied {
		a.SetResult(result)
	}
	return found, err
}

// HTTPProbe asks an endpoint whether an effect happened. Its methods may be called concurrently.
type HTTPProbe struct {
	// URL may hold {key} and {effect_key}, which are replaced, escaped for a path.
	URL, Queue string
	// Keep is how many bytes of a response are stored as the result.
	Keep   int
	Client *http.Client
	Log    *slog.Logger
}

// NewHTTPProbe completes a probe: concurrency is how many requests run at once.
func NewHTTPProbe(p HTTPProbe, concurrency int) *HTTPProbe {
	p.Client = NewHTTP(HTTP{Log: p.Log}, concurrency).Client
	return &p
}

// Ask makes a probe of an endpoint, for a consumer: see Probe.
func (p *HTTPProbe) Ask(ctx context.Context, a *semel.Attempt) (semel.ProbeResult, error) {
	return ask(ctx, p, a)
}

// Probe implements Prober by a GET request: 200 says that the effect happened (the body is the result), 404 that it did
// not, and anything else, including a redirect and an unknown Semel-Outcome, that it is unknown. The header Semel-Outcome
// overrides the status: applied, not-applied, unknown.
func (p *HTTPProbe) Probe(ctx context.Context, a *semel.Attempt) (semel.ProbeResult, []byte, error) {
	req, err := p.request(ctx, a)
	if err != nil {
		return semel.ProbeUnknown, nil, fmt.Errorf("make request: %w", shown(err, p.URL))
	}
	res, err := p.Client.Do(req)
	if err != nil {
		err = fmt.Errorf("ask: %w", shown(err, p.URL))
		if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
			err = semel.Unavailable(err) // it can be asked later: that is no doubt
		}
		return semel.ProbeUnknown, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	out := &capture{max: p.Keep}
	_, err = io.Copy(out, io.LimitReader(res.Body, int64(p.Keep)+256<<10))
	body, cut := out.got()
	switch found := probeResult(res); {
	case found == semel.ProbeUnknown:
		detail := shorten(strings.TrimSpace(strings.ToValidUTF8(string(body), "\uFFFD")), 300)
		return found, nil, withDetail(fmt.Errorf("probe responded %s", res.Status), detail)
	case found == semel.ProbeNotApplied:
		return found, nil, nil
	case err != nil: // it happened, and the result is incomplete
		return semel.ProbeUnknown, nil, fmt.Errorf("read the probe's response: %w", err)
	}
	if cut {
		p.Log.Warn("result cut", "key", a.Key.Raw, "bytes", len(body), "hint", "raise --result-max, or send less")
	}
	return semel.ProbeApplied, body, nil
}

func (p *HTTPProbe) request(ctx context.Context, a *semel.Attempt) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.address(a), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "semel")
	req.Header.Set("Idempotency-Key", a.EffectKey(""))
	identify(req.Header, p.Queue, a)
	return req, nil
}

func probeResult(res *http.Response) semel.ProbeResult {
	switch said := strings.ToLower(strings.TrimSpace(res.Header.Get("Semel-Outcome"))); said {
	case "applied":
		return semel.ProbeApplied
	case "not-applied":
		return semel.ProbeNotApplied
	case "":
	default:
		return semel.ProbeUnknown
	}
	switch res.StatusCode {
	case http.StatusOK:
		return semel.ProbeApplied
	case http.StatusNotFound:
		return semel.ProbeNotApplied
	}
	return semel.ProbeUnknown
}

// address is the URL for one key.
func (p *HTTPProbe) address(a *semel.Attempt) string {
	return strings.NewReplacer(
		"{key}", url.PathEscape(a.Key.Raw), "{effect_key}", a.EffectKey(""),
	).Replace(p.URL)
}
