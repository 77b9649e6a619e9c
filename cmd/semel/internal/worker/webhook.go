package worker

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/semel-dev/semel"
)

// ReadSecret reads a Standard Webhooks secret (whsec_ and base64) from a file.
func ReadSecret(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	encoded, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "whsec_")
	if !ok {
		return nil, fmt.Errorf("file %s: the secret must begin with whsec_", path)
	}
	secret, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || len(secret) < 16 {
		return nil, fmt.Errorf("file %s: the secret must be base64 of 16 bytes or more after whsec_", path)
	}
	return secret, nil
}

// sign adds the headers of Standard Webhooks: the id is the effect key, which stays the same when the message comes
// again, so that a receiver's replay protection agrees with ours.
func sign(h http.Header, secret []byte, a *semel.Attempt, now time.Time) {
	id, at := "msg_"+a.EffectKey(""), strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(a.Body)
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", at)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
