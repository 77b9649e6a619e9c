package config

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/cmd/semel/internal/open"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/key"
)

// Check refuses what cannot work before anything is opened. The error names the setting and the fix.
func (w *Work) Check() error {
	for _, f := range []func() error{w.checkPlaces, w.checkHandler, w.checkWords, w.checkNumbers} {
		if err := f(); err != nil {
			return err
		}
	}
	if err := w.checkLimits(); err != nil {
		return err
	}
	if _, err := key.Parse(w.Key); err != nil {
		return Explain(err)
	}
	if err := w.checkPreviousKey(); err != nil {
		return err
	}
	if _, err := w.FingerprintFunc(); err != nil {
		return Explain(err)
	}
	return nil
}

func (w *Work) checkPlaces() error {
	q, err := open.Parse("queue", w.Queue)
	if err != nil {
		return err
	}
	if err := q.NamesQueue("queue"); err != nil {
		return err
	}
	if w.Store == "" {
		return q.HasRecords()
	}
	s, err := open.Parse("store", w.Store)
	if err != nil {
		return err
	}
	if err := s.HasRecords(); err != nil {
		return err
	}
	if s.Ephemeral() != q.Ephemeral() {
		return output.Usage("--store %s and --queue %s: one is kept, the other ends with the process", s.Shown, q.Shown).
			WithHint("leave --store away: the records then go where the queue is")
	}
	return nil
}

// StoreURL is the URL of the store: the queue's unless another one is given.
func (w *Work) StoreURL() string {
	if w.Store != "" {
		return w.Store
	}
	return w.Queue
}

func (w *Work) checkHandler() error {
	n := 0
	for _, given := range []bool{w.Exec != "", len(w.Command) > 0, w.Pipe != "", w.HTTP != "", w.Simulate.On} {
		if given {
			n++
		}
	}
	const how = "--exec 'python3 handler.py', or --pipe 'python3 lines.py', or -- python3 handler.py, or --http http://127.0.0.1:9000/orders"
	switch {
	case n == 0:
		return output.Usage("no handler: give --exec, --pipe, --http, --simulate or a program after --").WithHint(how)
	case n > 1:
		return output.Usage("more than one handler: --exec, --pipe, --http, --simulate and a program after -- exclude each other").WithHint(how)
	}
	if w.HTTP != "" {
		u, err := url.Parse(w.HTTP)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return output.Usage("--http %q is not an http or https URL", open.Redact(w.HTTP)).WithHint("--http http://127.0.0.1:9000/orders")
		}
	} else if w.WebhookSecretFile != "" || w.Compat != "" {
		return output.Usage("--webhook-secret-file and --compat need --http")
	}
	switch {
	case w.PipeBatch > 0 && w.Pipe == "":
		return output.Usage("--pipe-batch needs --pipe")
	case w.HTTPBatch > 0 && w.HTTP == "":
		return output.Usage("--http-batch needs --http")
	case w.HTTPBatch > 0 && w.Compat != "":
		return output.Usage("--compat %s and --http-batch exclude each other: its headers are of one message", w.Compat)
	}
	if err := w.checkSimulate(); err != nil {
		return err
	}
	return w.checkProbe()
}

func (w *Work) checkSimulate() error {
	if !w.Simulate.On {
		return nil
	}
	if err := w.Simulate.Check(); err != nil {
		return output.Usage("--simulate: %w", err).WithHint("docs/worker.md lists the knobs, and the variables that set them (SLEEP_MIN_SECONDS and so on)")
	}
	if w.Effects != "" || w.Probe != "" || w.ProbeHTTP != "" {
		return output.Usage("--effects, --probe and --probe-http are for handlers that --simulate is not").
			WithHint("--simulate=transactional,ledger=TABLE commits its effects with the record")
	}
	return nil
}

func (w *Work) checkProbe() error {
	if w.Takeover == "probe" && w.Probe == "" && w.ProbeHTTP == "" {
		return output.Usage("--takeover probe needs --probe or --probe-http").
			WithHint("--probe 'check.sh': exit 0 the effect happened, 75 it did not, anything else unknown")
	}
	if w.Takeover == "resume" && (w.Probe != "" || w.ProbeHTTP != "") {
		return output.Usage("--probe and --probe-http are not asked under --takeover resume").WithHint("--takeover probe")
	}
	return CheckProbe(w.Probe, w.ProbeHTTP)
}

// CheckProbe refuses two probes, and a URL that is none.
func CheckProbe(command, address string) error {
	if command != "" && address != "" {
		return output.Usage("--probe and --probe-http exclude each other")
	}
	if address == "" {
		return nil
	}
	u, err := url.Parse(strings.NewReplacer("{key}", "k", "{effect_key}", "k").Replace(address))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return output.Usage("--probe-http %q is not an http or https URL", open.Redact(address)).
			WithHint("--probe-http 'http://127.0.0.1:9000/charges/{key}'")
	}
	return nil
}

func (w *Work) checkWords() error {
	defaults := Default()
	unset := fields(&defaults)
	for i, f := range fields(w) {
		value := f.value.Interface()
		if len(f.values) == 0 || value == unset[i].value.Interface() {
			continue
		}
		if s, _ := value.(string); !slices.Contains(f.values, s) {
			return output.Usage("--%s %q is unknown (known: %s)", f.name, s, strings.Join(f.values, ", "))
		}
	}
	v, err := w.Versions()
	if err != nil {
		return Explain(err)
	}
	if v != nil && w.Key == "id" {
		return output.Usage("--strategy %s needs --key: the entity that the versions are of", w.Strategy).WithHint("--key json:/order_id")
	}
	if v != nil && w.OnMissingKey == "id" {
		return output.Usage("--strategy %s and --on-missing-key id: a message without its entity would replace nothing", w.Strategy).
			WithHint("--on-missing-key fail")
	}
	return nil
}

// Versions is what --strategy says; nil for once.
func (w *Work) Versions() (*key.Versions, error) {
	if w.Strategy == "" {
		return nil, nil //nolint:nilnil // nil means once
	}
	return key.ParseVersions(w.Strategy)
}

func (w *Work) checkNumbers() error {
	for _, c := range []struct {
		flag string
		bad  bool
		hint string
	}{
		{"concurrency", w.Concurrency < 1 || w.Concurrency > 10000, "use 1 to 10000"},
		{"processes", w.Processes < 1 || w.Processes > 1000, "use 1 to 1000"},
		{"in-flight", w.InFlight < 1 || w.InFlight > 1000, "use 1 to 1000"},
		{"pipe-batch", w.PipeBatch < 0 || w.PipeBatch > 10000, "use 0 for single messages, or 1 to 10000"},
		{"http-batch", w.HTTPBatch < 0 || w.HTTPBatch > 10000, "use 0 for single messages, or 1 to 10000"},
		{"in-flight", w.Slots() > 100_000, "processes × in-flight × pipe-batch, or concurrency × http-batch, must be 100000 or less"},
		{"batch", w.Batch < 1 || w.Batch > 10000, "use 1 to 10000"},
		{"committers", w.Committers < 1 || w.Committers > 64, "use 1 to 64"},
		{"max-attempts", w.MaxAttempts < 1, "use 1 or more"},
		{"breaker", w.Breaker < 0, "use 0 for never, or 1 and more"},
		{"group-concurrency", w.GroupConcurrency < 0, "use 0 for no limit"},
		{"limit", w.Limit < 0, "use 0 for no limit"},
		{"visibility", w.Visibility < Duration(100*time.Millisecond), "use 100ms or more"},
		{"max-runtime", w.MaxRuntime <= 0, "use a positive duration"},
		{"long-term", w.LongTerm != 0 && w.LongTerm < Duration(24*time.Hour), "use 0 for none, or 1d and more, like 400d"},
		{"max-age", w.MaxAge < 0, "use 0 for any age"},
		{"grace", w.Grace < Duration(10*time.Millisecond), "use 10ms or more"},
		{"cache-size", w.CacheSize < 0 || w.CacheSize > 10_000_000, "use 0 for none, or 1 to 10000000 keys"},
		{"cache-max-age", w.CacheMaxAge <= 0 || w.CacheMaxAge > Duration(time.Hour), "use a positive duration of 1h at most"},
		{"result-max", w.ResultMax < 1, "use 1 byte or more"},
	} {
		if c.bad {
			return output.Usage("--%s is out of range", c.flag).WithHint("%s", c.hint)
		}
	}
	if w.Timeout > w.MaxRuntime {
		return output.Usage("--timeout %s is longer than --max-runtime %s", w.Timeout, w.MaxRuntime).
			WithHint("--max-runtime %s", w.Timeout)
	}
	return nil
}

// checkLimits refuses rates out of range, and rules for what this kind of handler has not.
func (w *Work) checkLimits() error {
	if _, err := w.groupBy(); err != nil {
		return output.Usage("%w", err).WithHint("--group-by header:tenant --group-concurrency 2")
	}
	for _, r := range []struct {
		flag string
		rate Rate
	}{{"rate", w.Rate}, {"group-rate", w.GroupRate}} {
		if v := r.rate.rate.PerSecond; v != 0 && (v < 1e-4 || v > 1e6) || r.rate.rate.Burst > 100_000 {
			return output.Usage("--%s %s is out of range", r.flag, r.rate).
				WithHint("use 0.0001 to 1000000 in a second, and a burst of 1 to 100000")
		}
	}
	for i := range w.Retry {
		if handler := w.Retry[i].Handler(); handler == "http" && w.HTTP == "" || handler == "program" && w.HTTP != "" {
			return output.Usage("--retry %s never applies to this kind of handler", w.Retry[i]).
				WithHint("programs end by exit=N and signal, --http by status=N and connection")
		}
	}
	return nil
}

// FingerprintFunc is what --fingerprint says.
func (w *Work) FingerprintFunc() (key.FingerprintFunc, error) {
	if v, err := w.Versions(); v != nil && err == nil {
		switch w.Fingerprint {
		case "default", "": // one version is one payload
			return key.FingerprintBody(), nil
		case "none":
			return func(*semel.Message) (semel.Fingerprint, error) { return "", nil }, nil
		}
	}
	if w.Fingerprint == "default" || w.Fingerprint == "" {
		return key.DefaultFingerprint(w.Key), nil
	}
	return key.ParseFingerprint(w.Fingerprint)
}

// TakeoverPolicy is what --takeover says.
func (w *Work) TakeoverPolicy() semel.Takeover {
	return map[string]semel.Takeover{"resume": semel.Resume, "probe": semel.Probe, "once": semel.Once}[w.Takeover]
}

// BusyPolicy is what --busy says.
func (w *Work) BusyPolicy() semel.BusyPolicy {
	if w.Busy == "fail" {
		return semel.BusyFail
	}
	return semel.BusyDefer
}

// Explain turns an error about the consumer's configuration into one that names the flag.
func Explain(err error) error {
	if e := (*semel.ConfigError)(nil); errors.As(err, &e) {
		return output.Usage("--%s %s", flagOf(e.Field), e.Problem).WithHint("%s", e.Hint)
	}
	if e := (*key.SpecError)(nil); errors.As(err, &e) {
		return output.Usage("--%s %s", flagOf(e.Field), e.Problem).WithHint("%s", e.Hint)
	}
	if errors.Is(err, semel.ErrNoTx) {
		return output.Usage("--effects sql: %w", err).WithHint("--store with the sqlite, postgres or mysql URL of the database that the effects go to")
	}
	return err
}

// flagOf spells a field of semel.Config as its flag: MaxRuntime is max-runtime.
func flagOf(field string) string {
	if strings.HasPrefix(field, "Retain.") {
		return "retention"
	}
	switch field {
	case "AllowUnkeyed":
		return "on-missing-key"
	case "ClaimAtCommit":
		return "claim"
	case "Versions":
		return "strategy"
	}
	var b strings.Builder
	for i, r := range field {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('-')
		}
		b.WriteRune(r)
	}
	return strings.ToLower(b.String())
}
