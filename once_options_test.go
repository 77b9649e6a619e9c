package semel_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/memory"
)

// TestDoRefusesOptions: a lease that has ended when it begins would be claimed forever, and what is not retained is no
// protection. Both are said before anything is claimed.
func TestDoRefusesOptions(t *testing.T) {
	for field, o := range map[string]semel.DoOption{
		"WithLease": semel.WithLease(0), "WithRetention": semel.WithRetention(-time.Hour),
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		s, runs := memory.NewStore(), 0
		for range 2 {
			_, _, err := semel.Do(ctx, s, semel.Key{Consumer: "c", Raw: "k"}, func(context.Context, *semel.Attempt) (int, error) {
				runs++
				return 0, nil
			}, o)
			if bad := (*semel.ConfigError)(nil); !errors.As(err, &bad) || bad.Field != field {
				t.Errorf("%s: %v, wanted a ConfigError", field, err)
			}
		}
		cancel()
		if runs != 0 {
			t.Errorf("%s: %d runs", field, runs)
		}
	}
}
