package output

import "testing"

func TestCommand(t *testing.T) {
	got := Command("records", "resolve", "it's|k", "--as", "completed", "--store", "sqlite:a.db?queue=orders")
	if want := `semel records resolve 'it'\''s|k' --as completed --store 'sqlite:a.db?queue=orders'`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
