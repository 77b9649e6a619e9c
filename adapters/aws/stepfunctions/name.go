package stepfunctions

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"strings"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/driver"
)

const (
	// MaxName is the most characters that an execution name may have.
	//
	// https://docs.aws.amazon.com/step-functions/latest/apireference/API_StartExecution.html
	MaxName = 80
	// NameKept is how long after its execution closed a name cannot be used again (same page). Afterwards only a record that
	// is kept longer prevents a second execution of the key.
	NameKept = 90 * 24 * time.Hour
)

// nameRecipe is the version of Name. The service keeps names for 90 days and longer, so another recipe starts everything
// once more.
const nameRecipe = "semel-execution-1"

// lower writes 32 bytes in 52 lower-case characters, so that names differ even if case is ignored.
var lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Name returns the name of a key's execution: the readable end of the key, and the SHA-256 of tenant and key. It has at most
// [MaxName] characters, only 0-9, A-Z, a-z, - and _, which the logs of CloudWatch accept too. Different keys have different
// names, even if case is ignored. The key's consumer is not part of it: two rules for the same machine mean the same
// execution.
//
// Everybody with the permission to list executions can read the end of the key. Hash confidential parts of a key.
func Name(k semel.Key) string { return nameOf(driver.Hold{Key: k}) }

// nameOf also distinguishes versions, and deliberate runs after a completion.
func nameOf(h driver.Hold) string {
	b := make([]byte, 0, 128)
	for _, s := range [...]string{nameRecipe, h.Key.Tenant, h.Key.Raw, string(h.Version)} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint32(b, h.Epoch))
	hash := lower.EncodeToString(sum[:])
	if words := readable(h.Key.Raw, MaxName-len(hash)-1); words != "" {
		return words + "-" + hash
	}
	return hash
}

// readable returns the end of a key, which often is a file name, in valid characters, at most most of them.
func readable(key string, most int) string {
	var b strings.Builder
	gap := false
	for i := range len(key) {
		switch c := key[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
			if gap && b.Len() > 0 {
				b.WriteByte('-')
			}
			gap = false
			b.WriteByte(c)
		default:
			gap = true
		}
	}
	text := b.String()
	if len(text) <= most {
		return text
	}
	cut := text[len(text)-most:]
	if _, whole, found := strings.Cut(cut, "-"); found && whole != "" && text[len(text)-most-1] != '-' {
		return whole // begin with a whole word
	}
	return strings.TrimPrefix(cut, "-")
}
