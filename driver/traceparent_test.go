package driver

import "testing"

func TestTraceparents(t *testing.T) {
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for _, c := range []struct {
		in          string
		ok, sampled bool
	}{
		{good, true, true},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", true, false},
		{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0b", true, true},
		{"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false, false},
		{"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", false, false},
		{"00-00000000000000000000000000000000-b7ad6b7169203331-01", false, false},
		{"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", false, false},
		{"00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01", false, false},
		{good + "-", false, false},
		{"", false, false},
	} {
		p, ok := ParseTraceparent(c.in)
		if ok != c.ok || ok && (string(p) != c.in || p.Sampled() != c.sampled || p.TraceID() != c.in[3:35] || p.SpanID() != c.in[36:52]) {
			t.Errorf("%q is parsed as %q, %v", c.in, p, ok)
		}
	}
	for _, reason := range []string{"", "no such card", "ends with trace ", "trace " + good[1:]} {
		for _, p := range []Traceparent{"", good} {
			if r, got := CutTrace(AppendTrace(reason, p)); r != reason || got != p {
				t.Errorf("%q with %q is read as %q with %q", reason, p, r, got)
			}
		}
	}
	if AppendTrace("", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00") != "" {
		t.Error("a span that is not sampled is kept")
	}
}
