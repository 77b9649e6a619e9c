package stepfunctions_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/stepfunctions"
	"github.com/semel-dev/semel/key"
)

var legal = regexp.MustCompile(`^[0-9A-Za-z_-]{1,80}$`)

// hash is the part of a name that distinguishes keys. The readable part before it is for people.
func hash(name string) string { return strings.ToLower(name[len(name)-52:]) }

func name(parts ...string) string { return stepfunctions.Name(semel.Key{Raw: key.Tuple(parts...)}) }

// TestNameIsStored: the service keeps names for 90 days, so another name for the same key would start everything once more.
func TestNameIsStored(t *testing.T) {
	for raw, want := range map[string]string{
		"k":       "k-w2ocohfbwspoyjmaaduhjekt2axs3u7z2iflwhm7y75oxpnknwla",
		"日本/データ":  "vv7pgo5bn7he3ge3xebdc5gz6aalhqfrbfpshfbtu2gmicefhona",
		"a|b\\|c": "a-b-c-datm7xw6tka24lvbqymtkmof7wsrrvljndnzxnmi7dfpiqvmetta",
		"my-bucket|reports/2026-11/Umsatz.csv|v1": "2026-11-Umsatz-csv-v1-i7egvzsphts5meygecqnpp5r3lw446wzjqmgcu4tbsaref5atruq",
		"order 7/x": "order-7-x-hbsufupk2csbaatoy2fofidxy372q2ng42nhqxf5idlglii7couq",
	} {
		if got := stepfunctions.Name(semel.Key{Raw: raw}); got != want {
			t.Errorf("the name of %q is %s, want %s", raw, got, want)
		}
	}
}

// TestFM54_NamesTellTuplesApart: problems of names that are joined by hand: separators in parts, parts that differ only in
// characters that a name must not contain, and names that are cut off at 80 characters.
func TestFM54_NamesTellTuplesApart(t *testing.T) {
	long := strings.Repeat("x", 200)
	seen := map[string]string{}
	for _, parts := range [][]string{
		{"a|b", "c"}, {"a", "b|c"}, {"a-b", "c"}, {"a", "b-c"}, {"a/b", "c"}, {"a:b", "c"}, {"a b", "c"}, {"a\\|b", "c"}, {"A", "b-c"}, {"a", "B-c"},
		{long, "1"}, {long, "2"}, {"1", long}, {"2", long}, {"ä", "c"}, {"ö", "c"}, {"a", "b", "c"}, {"", "a", "b"}, {"a", "b", ""},
	} {
		n := name(parts...)
		sum := hash(n)
		if other, twice := seen[sum]; twice {
			t.Errorf("%q and %s have one name: %s", parts, other, n)
		}
		seen[sum] = key.Tuple(parts...)
		if !legal.MatchString(n) {
			t.Errorf("%q has the name %s", parts, n)
		}
	}
	a, b := semel.Key{Tenant: "a", Raw: "bc"}, semel.Key{Tenant: "ab", Raw: "c"}
	if hash(stepfunctions.Name(a)) == hash(stepfunctions.Name(b)) {
		t.Error("two tenants share a name")
	}
	if stepfunctions.Name(semel.Key{Consumer: "rule-1", Raw: "k"}) != stepfunctions.Name(semel.Key{Consumer: "rule-2", Raw: "k"}) {
		t.Error("two rules for one machine have two names for one key")
	}
}

// FuzzName: every key has a valid name, and two keys never share one, even if case is ignored.
func FuzzName(f *testing.F) {
	f.Add("", "a|b", "c", "", "a", "b|c")
	f.Add("t", "bucket", "a/b c.csv", "t", "bucket", "a/b_c.csv")
	f.Fuzz(func(t *testing.T, tenant1, a1, b1, tenant2, a2, b2 string) {
		k1 := semel.Key{Tenant: tenant1, Raw: key.Tuple(a1, b1)}
		k2 := semel.Key{Tenant: tenant2, Raw: key.Tuple(a2, b2)}
		n1, n2 := stepfunctions.Name(k1), stepfunctions.Name(k2)
		if !legal.MatchString(n1) {
			t.Errorf("%q has the name %s", k1, n1)
		}
		if same := k1 == k2; same != (hash(n1) == hash(n2)) {
			t.Errorf("%+v and %+v have the names %s and %s", k1, k2, n1, n2)
		}
		if n1 != stepfunctions.Name(k1) {
			t.Errorf("%+v has two names", k1)
		}
	})
}
