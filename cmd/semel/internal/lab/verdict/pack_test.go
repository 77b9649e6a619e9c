package verdict

import "testing"

func TestPackBoundsTheRows(t *testing.T) {
	var spans []*Span
	for i := range 3 * maxRows {
		spans = append(spans, &Span{From: float64(i), To: 1000})
	}
	if n := pack(spans); n != maxRows {
		t.Errorf("%d rows", n)
	}
	for _, s := range spans {
		if s.Row < 0 || s.Row >= maxRows {
			t.Errorf("row %d", s.Row)
		}
	}
}
