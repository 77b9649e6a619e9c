package dynamodb

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// TestWritesAreChecked: writes that no transaction accepts are refused before anything is sent.
func TestWritesAreChecked(t *testing.T) {
	r := newFixture(t, Options{Gate: "done"})
	big := text(strings.Repeat("x", 390<<10))
	for name, add := range map[string]func(w *Writes){
		"takes 98 beside": func(w *Writes) {
			for i := range 99 {
				w.Add(r.ledger, ledgerKey(string(rune('a'+i))), "n", 1)
			}
		},
		"are for the same item": func(w *Writes) {
			w.Add(r.ledger, ledgerKey("a"), "n", 1)
			w.Put(types.Put{TableName: &r.ledger, Item: attrs{"id": text("effect of a"), "n": number(7)}})
		},
		"is a record": func(w *Writes) {
			w.Delete(types.Delete{TableName: aws.String("records"), Key: r.shape.keyOf(driver.Key{Raw: "b"})})
		},
		"is a record, which": func(w *Writes) {
			w.Delete(types.Delete{
				TableName: aws.String("arn:aws:dynamodb:us-east-1:000000000000:table/records"),
				Key:       attrs{"pk": text("x"), "sk": text("record")},
			})
		},
		"is the gate": func(w *Writes) { w.Create("done", "pk", attrs{"pk": text("a")}) },
		"takes 4 MB": func(w *Writes) {
			for i := range 10 {
				w.Create(r.ledger, "id", attrs{"id": text(string(rune('a' + i))), "x": big})
			}
		},
		"names no table": func(w *Writes) { w.Update(types.Update{Key: ledgerKey("a")}) },
		// Only the service can refuse these two.
		"condition failed": func(w *Writes) {
			w.Check(types.ConditionCheck{
				TableName: &r.ledger, Key: ledgerKey("x"), ConditionExpression: aws.String("attribute_exists(id)"),
			})
		},
		"does not exist": func(w *Writes) { w.Create("no-such-table", "id", attrs{"id": text("a")}) },
	} {
		t.Run(name, func(t *testing.T) {
			gs, err := r.Claim(t.Context(), claimOf("good "+name), claimOf("bad "+name))
			if err != nil {
				t.Fatal(err)
			}
			bad := r.withEffect(gs[1])
			add(bad.Effects.(*Writes))
			_, err = r.Commit(t.Context(), r.withEffect(gs[0]), bad)
			var item *driver.ItemError
			if !errors.As(err, &item) || item.Index != 1 || !strings.Contains(err.Error(), name) {
				t.Errorf("commit returned %v", err)
			}
			if o, err := r.Commit(t.Context(), r.withEffect(gs[0])); err != nil || o[0] != driver.Applied {
				t.Errorf("the other work's commit returned %v, %v", o, err)
			}
			if r.effects(t, "good "+name) != 1 || r.effects(t, "bad "+name) != 0 {
				t.Errorf("effects %d and %d, wanted 1 and 0", r.effects(t, "good "+name), r.effects(t, "bad "+name))
			}
		})
	}
}

// TestWorksOnOneItem commits works that write the same item: they go one after the other.
func TestWorksOnOneItem(t *testing.T) {
	r := newFixture(t, Options{})
	var cs []driver.Claim
	for i := range 5 {
		cs = append(cs, claimOf(string(rune('a'+i))))
	}
	gs, err := r.Claim(t.Context(), cs...)
	if err != nil {
		t.Fatal(err)
	}
	var works []driver.Work
	for _, g := range gs {
		w := &Writes{}
		w.Add(r.ledger, ledgerKey("shared"), "n", 1)
		works = append(works, driver.Work{Finish: completion(g), Effects: w})
	}
	o, err := r.Commit(t.Context(), works...)
	if err != nil || o[4] != driver.Applied || r.effects(t, "shared") != 5 {
		t.Errorf("commit returned %v, %v with %d effects", o, err, r.effects(t, "shared"))
	}
}
