package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/key"
)

// This file is the guard: claim, extend, complete, release on the store, for programs in any language.

const (
	defaultLease = 30 * time.Second
	minLease     = 100 * time.Millisecond
	maxLease     = 12 * time.Hour
)

// claimRequest is the body of /v1/claim.
type claimRequest struct {
	Key      string `json:"key"`
	Consumer string `json:"consumer"`
	Tenant   string `json:"tenant"`
	LeaseMS  *int64 `json:"lease_ms"`
	// Nonce makes a repeated request the same claim: 32 hex digits or a UUID, fresh per attempt.
	Nonce string `json:"nonce"`
	// Fingerprint is any text that says what the key means: another text under the same key is a mismatch.
	Fingerprint string `json:"fingerprint"`
	DeliveryID  string `json:"delivery_id"`
	Takeover    string `json:"takeover"`
}

// claimReply is the response. The client sends Hold back unchanged.
type claimReply struct {
	Verdict      string `json:"verdict"`
	IsDuplicate  bool   `json:"isDuplicate"`
	Hold         string `json:"hold,omitempty"`
	Token        uint64 `json:"token"`
	Nonce        string `json:"nonce,omitempty"`
	Attempt      int    `json:"attempt"`
	Unknown      bool   `json:"unknown"`
	EffectKey    string `json:"effect_key,omitempty"`
	LeaseMS      int64  `json:"lease_ms,omitempty"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
	// RetryAfterSeconds is the same rounded up, for callers that wait in whole seconds (the Wait state of Step Functions).
	RetryAfterSeconds int64   `json:"retry_after_seconds,omitempty"`
	Result            *string `json:"result,omitempty"`
	ResultBase64      string  `json:"result_base64,omitempty"`
	Reason            string  `json:"reason,omitempty"`
}

func (c *claimRequest) claim(consumer string) (driver.Claim, error) {
	out := driver.Claim{
		Key:   driver.Key{Consumer: consumer, Tenant: c.Tenant, Raw: c.Key},
		Lease: defaultLease, DeliveryID: c.DeliveryID, Fingerprint: textFingerprint(c.Fingerprint),
	}
	if c.Consumer != "" {
		out.Key.Consumer = c.Consumer
	}
	if err := errors.Join(checkKey(out.Key), checkText("delivery_id", c.DeliveryID, maxDeliveryID),
		checkSize("fingerprint", c.Fingerprint, maxFingerprint)); err != nil {
		return out, err
	}
	if c.LeaseMS != nil {
		if *c.LeaseMS < minLease.Milliseconds() || *c.LeaseMS > maxLease.Milliseconds() {
			return out, fmt.Errorf("lease_ms: want %d to %d", minLease.Milliseconds(), maxLease.Milliseconds())
		}
		out.Lease = time.Duration(*c.LeaseMS) * time.Millisecond
	}
	switch c.Takeover {
	case "", "resume":
	case "once":
		out.Takeover = driver.Once
	default:
		return out, errors.New("takeover: want resume or once")
	}
	if c.Nonce == "" {
		_, _ = rand.Read(out.Nonce[:]) // never fails: crypto/rand
		return out, nil
	}
	b, err := hex.DecodeString(withoutDashes(c.Nonce))
	if err != nil || len(b) != len(out.Nonce) || driver.Nonce(b) == (driver.Nonce{}) {
		return out, errors.New("nonce: want 32 hex digits that are not all 0, or a UUID")
	}
	out.Nonce = driver.Nonce(b)
	return out, nil
}

// checkKey reports a key that a store may not be able to keep.
func checkKey(k driver.Key) error {
	if err := key.Check(k.Raw); err != nil {
		return fmt.Errorf("key: %w", err)
	}
	return errors.Join(checkText("consumer", k.Consumer, maxConsumer), checkText("tenant", k.Tenant, maxTenant))
}

// withoutDashes makes hex digits of a UUID in its usual form; any other text stays as it is.
func withoutDashes(s string) string {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return s
	}
	return strings.ReplaceAll(s, "-", "")
}

// textFingerprint is the fingerprint of a text that the caller made, under a recipe of its own.
func textFingerprint(s string) driver.Fingerprint {
	if s == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(s))
	return driver.Fingerprint("api1" + string(sum[:]))
}

func (s *Server) claim(w http.ResponseWriter, r *http.Request) {
	var req claimRequest
	if !s.body(w, r, &req) {
		return
	}
	c, err := req.claim(s.Consumer)
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), opTimeout)
	defer cancel()
	gs, err := s.Store.Claim(ctx, c)
	if err == nil && len(gs) == 1 {
		err = gs[0].Err
	}
	if err != nil || len(gs) != 1 {
		s.unavailable(w, "claim (repeat it with the same nonce)", err)
		return
	}
	reply(w, http.StatusOK, claimResponse(c, gs[0]))
}

func claimResponse(c driver.Claim, g driver.Grant) claimReply {
	out := claimReply{
		Verdict: g.Verdict.String(), IsDuplicate: g.Verdict != driver.Acquired, Token: g.Hold.Token, Attempt: g.Attempt,
		Unknown: g.Unknown, RetryAfterMS: roundUp(g.Wait), Reason: g.Reason,
	}
	switch g.Verdict {
	case driver.Acquired:
		out.Hold, out.Nonce = packHold(g.Hold), hex.EncodeToString(g.Hold.Nonce[:])
		out.EffectKey, out.LeaseMS = semel.EffectKey(g.Hold, ""), c.Lease.Milliseconds()
	case driver.Replay:
		if utf8.Valid(g.Result) {
			text := string(g.Result)
			out.Result = &text
		} else {
			out.ResultBase64 = base64.StdEncoding.EncodeToString(g.Result)
		}
	case driver.Busy:
		out.RetryAfterSeconds = max(1, int64((g.Wait+time.Second-1)/time.Second))
	default:
	}
	return out
}

func roundUp(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// hold is the text of a driver.Hold: opaque to callers, so that nobody builds one by hand.
type hold struct {
	Consumer   string `json:"c"`
	Tenant     string `json:"t,omitempty"`
	Raw        string `json:"k"`
	Generation uint32 `json:"g"`
	Epoch      uint32 `json:"e,omitempty"`
	Token      uint64 `json:"f"`
	Nonce      string `json:"n"`
}

func packHold(h driver.Hold) string {
	b, _ := json.Marshal(hold{ // strings and numbers always encode
		h.Key.Consumer, h.Key.Tenant, h.Key.Raw, h.Generation, h.Epoch, h.Token, hex.EncodeToString(h.Nonce[:]),
	})
	return base64.RawURLEncoding.EncodeToString(b)
}

func unpackHold(text string) (driver.Hold, error) {
	bad := errors.New("hold: want the one that /v1/claim returned")
	if len(text) > maxHold {
		return driver.Hold{}, bad
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return driver.Hold{}, bad
	}
	var h hold
	if decode(b, &h) != nil || checkKey(driver.Key{Consumer: h.Consumer, Tenant: h.Tenant, Raw: h.Raw}) != nil {
		return driver.Hold{}, bad
	}
	n, err := hex.DecodeString(h.Nonce)
	if err != nil || len(n) != len(driver.Nonce{}) || h.Token == 0 {
		return driver.Hold{}, bad
	}
	return driver.Hold{
		Key:        driver.Key{Consumer: h.Consumer, Tenant: h.Tenant, Raw: h.Raw},
		Generation: h.Generation, Epoch: h.Epoch, Token: h.Token, Nonce: driver.Nonce(n),
	}, nil
}

func (s *Server) extend(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Hold    string `json:"hold"`
		LeaseMS *int64 `json:"lease_ms"`
	}
	if !s.body(w, r, &req) {
		return
	}
	h, err := unpackHold(req.Hold)
	lease := defaultLease
	if req.LeaseMS != nil {
		lease = time.Duration(*req.LeaseMS) * time.Millisecond
	}
	if err == nil && (lease < minLease || lease > maxLease) {
		err = fmt.Errorf("lease_ms: want %d to %d", minLease.Milliseconds(), maxLease.Milliseconds())
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), opTimeout)
	defer cancel()
	out, err := s.Store.Extend(ctx, lease, h)
	s.outcome(w, "extend", out, err)
}

func (s *Server) complete(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Hold         string          `json:"hold"`
		Result       json.RawMessage `json:"result"`
		ResultBase64 *string         `json:"result_base64"`
	}
	if !s.body(w, r, &req) {
		return
	}
	f := driver.Finish{Final: driver.Complete, Keep: s.Retention}
	var err error
	if f.Hold, err = unpackHold(req.Hold); err == nil {
		f.Result, err = resultOf(req.Result, req.ResultBase64)
	}
	if limit := s.Store.Features().MaxResult; err == nil && limit > 0 && len(f.Result) > limit {
		err = fmt.Errorf("result: larger than the %d bytes that the store keeps", limit)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	s.finish(w, r, "complete", f)
}

// resultOf takes the text of a JSON string, or the JSON of any other value.
func resultOf(raw json.RawMessage, b64 *string) ([]byte, error) {
	switch {
	case raw != nil && b64 != nil:
		return nil, errors.New("give result or result_base64, not both")
	case b64 != nil:
		b, err := base64.StdEncoding.DecodeString(*b64)
		if err != nil {
			return nil, fmt.Errorf("result_base64: %w", err)
		}
		return b, nil
	case len(raw) > 0 && raw[0] == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return []byte(text), err
	}
	return raw, nil
}

var rans = map[string]driver.Ran{
	"": driver.MaybeApplied, "maybe_applied": driver.MaybeApplied, "not_applied": driver.NotApplied, "unstarted": driver.Unstarted,
}

func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Hold         string `json:"hold"`
		RetryAfterMS int64  `json:"retry_after_ms"`
		Ran          string `json:"ran"`
		Reason       string `json:"reason"`
	}
	if !s.body(w, r, &req) {
		return
	}
	f := driver.Finish{
		Final: driver.Release, Keep: cmp.Or(s.Released, s.Retention), Reason: req.Reason, RetryAfter: time.Duration(req.RetryAfterMS) * time.Millisecond,
	}
	var err error
	f.Hold, err = unpackHold(req.Hold)
	ran, known := rans[req.Ran]
	switch {
	case err != nil:
	case !known:
		err = errors.New("ran: want maybe_applied (the default), not_applied or unstarted")
	case len(req.Reason) > maxReason:
		err = checkSize("reason", req.Reason, maxReason)
	case req.RetryAfterMS < 0 || req.RetryAfterMS > (365*24*time.Hour).Milliseconds():
		err = errors.New("retry_after_ms: want 0 to a year")
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "bad_request", err.Error())
		return
	}
	f.Ran = ran
	s.finish(w, r, "release", f)
}

func (s *Server) finish(w http.ResponseWriter, r *http.Request, what string, f driver.Finish) {
	// Without a response the outcome is unknown. The write goes on after the client disconnects, because the client meant it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), opTimeout)
	defer cancel()
	out, err := s.Store.Finish(ctx, f)
	s.outcome(w, what, out, err)
}

// outcome responds to a write: 200 applied, 409 lost, 503 unknown.
func (s *Server) outcome(w http.ResponseWriter, what string, out []driver.Outcome, err error) {
	o := driver.Unknown
	if len(out) == 1 {
		o = out[0]
	}
	body := map[string]string{"outcome": o.String()}
	switch o {
	case driver.Applied, driver.Settled, driver.Recovered:
		reply(w, http.StatusOK, body)
	case driver.Lost:
		reply(w, http.StatusConflict, map[string]any{
			"outcome": o.String(),
			"error":   apiError{Code: "lost", Message: "somebody else has the key, or it has ended: stop, and write nothing"},
		})
	case driver.Unknown:
		if err == nil {
			err = errors.New("no response")
		}
		s.unavailable(w, what+" (repeat it as it is)", err)
	}
}
