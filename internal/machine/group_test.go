package machine_test

import (
	"testing"

	"github.com/semel-dev/semel/driver"
	"github.com/semel-dev/semel/internal/machine"
)

// TestRedriveIsNoLocalDuplicate: a person reopens a completed key while the ack of its message is on its way. The redrive's
// message asks the store; any other duplicate is acked.
func TestRedriveIsNoLocalDuplicate(t *testing.T) {
	r := newFixture(t, nil)
	r.begin("a")
	r.ran("a", machine.Result{})
	r.finish(driver.Applied)
	again := message(driver.RedriveID("x"), "a")
	r.receive(message("2", "a"), again)
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "m-a" {
		t.Fatalf("settled %+v", s)
	}
	if s := r.settle(driver.Applied).Settlements; len(s) != 1 || s[0].Receipt != "2" || s[0].Action != driver.Ack {
		t.Fatalf("settled %+v", s)
	}
	if c := r.claim(nil); len(c.Claims) != 1 || c.Claims[0].DeliveryID != again.ID {
		t.Fatalf("claimed %+v", c.Claims)
	}
}
