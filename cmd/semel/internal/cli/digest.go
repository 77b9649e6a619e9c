package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

// remembered says of a key that has no record whether the long-term tier remembers it. Any other error stays as it is.
func (l *ledger) remembered(ctx context.Context, raw string, missing error) error {
	lt, ok := driver.As[driver.LongTerm](l.store)
	if e := (*output.Error)(nil); !ok || !errors.As(missing, &e) || e.Code != output.CodeNotFound {
		return missing
	}
	st, err := lt.DigestStats(ctx)
	if err != nil {
		return err
	}
	consumers := []string{l.scope.consumer}
	if l.scope.consumer == "" {
		consumers = slices.Sorted(maps.Keys(st.Keep))
	}
	keys := make([]driver.Key, len(consumers))
	for i, c := range consumers {
		keys[i] = driver.Key{Consumer: c, Tenant: l.tenant, Raw: raw}
	}
	found, err := lt.Remembered(ctx, keys...)
	if err != nil {
		return err
	}
	for i, d := range found {
		if d.Found {
			return output.NotFound("there is no record of key %q of consumer %q any more; it is remembered as a digest: %s on %s, kept "+
				"until %s. A late duplicate becomes a dead letter of kind uncertain", raw, consumers[i], d.State, d.At.Format("2006-01-02 15:00 MST"),
				d.Until.Format(time.DateOnly))
		}
	}
	return missing
}

// longTerm says what the store keeps of records whose retention is over.
func (x *exam) longTerm(ctx context.Context, store driver.Store) {
	lt, ok := driver.As[driver.LongTerm](store)
	if !ok {
		return // New refuses --long-term there
	}
	st, err := lt.DigestStats(ctx)
	if err != nil {
		x.note(levelWarning, "long-term", "", "the digests of this store cannot be counted: %v", err)
		return
	}
	consumer := x.w.Consumer
	if consumer == "" {
		consumer = x.q.Name
	}
	kept := st.Keep[consumer]
	switch want := time.Duration(x.w.LongTerm); {
	case want == 0 && kept == 0 && st.Count == 0:
	case want == 0 && kept > 0:
		x.note(levelWarning, "long-term", fmt.Sprintf("--long-term %s", config.Duration(kept)), "digests of this consumer are kept for %s, "+
			"and a worker without --long-term does not look at them: a late duplicate runs%s", config.Duration(kept), digestsText(st))
	case want == 0:
		x.note(levelOK, "long-term", "", "this consumer keeps no digests%s", digestsText(st))
	default:
		x.note(levelOK, "long-term", "", "late duplicates are set aside for %s after a record's retention%s", config.Duration(max(want, kept)),
			digestsText(st))
	}
}

func digestsText(st driver.DigestStats) string {
	var b strings.Builder
	fmt.Fprintf(&b, "; the store has %d digests", st.Count)
	if st.Bytes > 0 {
		fmt.Fprintf(&b, " in %.1f MB", float64(st.Bytes)/1e6)
	}
	return b.String()
}
