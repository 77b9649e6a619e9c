package driver

import "strings"

// A record keeps the trace of the run that ended it at the end of its reason: "trace " and the span of the run as a
// traceparent (https://www.w3.org/TR/trace-context/#traceparent-header). Most completed records have no other reason.

// Traceparent is the position of a span: the value of a traceparent header of version 00. "" = none.
type Traceparent string

const (
	traceparentLen = len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	traceMark      = "trace "
	traceGap       = "; " // between a reason and the trace
)

// ParseTraceparent returns the traceparent in s. ok is false if s is not one of version 00, or has a zero ID.
func ParseTraceparent(s string) (t Traceparent, ok bool) {
	if len(s) != traceparentLen || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return "", false
	}
	for i := 3; i < len(s); i++ {
		if c := s[i]; i != 35 && i != 52 && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	t = Traceparent(s)
	return t, strings.Trim(t.TraceID(), "0") != "" && strings.Trim(t.SpanID(), "0") != ""
}

// TraceID returns the ID of the trace: 32 hex digits.
func (t Traceparent) TraceID() string { return string(t[3:35]) }

// SpanID returns the ID of the span: 16 hex digits.
func (t Traceparent) SpanID() string { return string(t[36:52]) }

// Sampled reports whether the span is recorded.
func (t Traceparent) Sampled() bool { return t != "" && strings.IndexByte("13579bdf", t[54]) >= 0 }

// AppendTrace returns a record's reason with the trace of its run. If the span is not sampled, the reason stays as it is.
func AppendTrace(reason string, t Traceparent) string {
	switch {
	case !t.Sampled():
		return reason
	case reason == "":
		return traceMark + string(t)
	}
	return reason + traceGap + traceMark + string(t)
}

// CutTrace is the reverse of [AppendTrace]. t is "" if the record has no trace.
func CutTrace(stored string) (reason string, t Traceparent) {
	from := len(stored) - traceparentLen
	if from < len(traceMark) || stored[from-len(traceMark):from] != traceMark {
		return stored, ""
	}
	t, ok := ParseTraceparent(stored[from:])
	if !ok {
		return stored, ""
	}
	return strings.TrimSuffix(stored[:from-len(traceMark)], traceGap), t
}
