package open

import (
	"regexp"
	"strings"
	"time"

	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/cmd/semel/internal/output"
	"github.com/semel-dev/semel/driver"
)

const dynamoForm = "dynamodb://semel-records?region=eu-west-1"

var tableName = regexp.MustCompile(`^[a-zA-Z0-9_.-]{3,255}$`)

// dynamoParams are the parameters beside the common ones: all but skew and observe describe a table that was there before.
var dynamoParams = append([]string{
	"pk", "sk", "sort", "raw-keys", "prefix", "status", "statuses", "adopt", "ttl", "gate", "gate-key", "skew", "observe",
}, commonParams...)

func parseDynamo(flag, raw string, t *Target) error {
	u, a, err := splitAWS(flag, raw, dynamoForm, dynamoParams)
	if err != nil {
		return err
	}
	if strings.Trim(u.Path, "/") != "" || u.Port() != "" || u.Opaque != "" || !tableName.MatchString(u.Host) {
		return output.Usage("--%s is not a URL of the form %s", flag, dynamoForm).WithHint("3 to 255 of a-z A-Z 0-9 _ . - name a table")
	}
	a.name = u.Host
	if _, err := a.layout(flag); err != nil {
		return err
	}
	t.aws, t.place, t.Shown = a, a.place("dynamodb "+a.name), "dynamodb://"+a.name
	if u.RawQuery != "" {
		t.Shown += "?" + u.RawQuery // no parameter is secret
	}
	return nil
}

// layout is how the URL says that records lie in the table.
func (a *awsPlace) layout(flag string) (o dynamodb.Options, err error) {
	p := a.params
	o.Layout = dynamodb.Layout{
		PartitionKey: p.Get("pk"), SortKey: p.Get("sk"), SortValue: p.Get("sort"), Prefix: p.Get("prefix"),
		Status: p.Get("status"), TTL: p.Get("ttl"),
	}
	o.Gate, o.GateKey = p.Get("gate"), p.Get("gate-key")
	if o.Gate != "" && (!tableName.MatchString(o.Gate) || o.Gate == a.name) {
		return o, output.Usage("--%s: gate=%s does not name another table", flag, o.Gate)
	}
	if o.GateKey != "" && o.Gate == "" {
		return o, output.Usage("--%s: gate-key=%s without gate=", flag, o.GateKey)
	}
	if (p.Get("sk") != "" || p.Get("raw-keys") != "") && p.Get("pk") == "" {
		return o, output.Usage("--%s: sk= and raw-keys= describe a table that was there before: they need pk=", flag)
	}
	if c := p.Get("raw-keys"); c != "" {
		o.Layout.Text = dynamodb.RawKeys(c)
	}
	if o.Observe, err = a.on(flag, "observe"); err != nil {
		return o, err
	}
	if raw := p.Get("skew"); raw != "" {
		d, err := time.ParseDuration(raw)
		if err != nil || d < 0 || d > time.Hour {
			return o, output.Usage("--%s: skew=%s is out of range", flag, raw).WithHint("skew=10s: how far clocks may differ, at most 1h")
		}
		if o.MaxClockSkew = d; d == 0 {
			o.MaxClockSkew = -1
		}
	}
	statuses, err := pairs(flag, "statuses", p.Get("statuses"))
	if err != nil {
		return o, err
	}
	for name, text := range statuses {
		st, ok := driver.ParseState(strings.ToUpper(name))
		if !ok {
			return o, unknownState(flag, "statuses", name)
		}
		if o.Layout.Statuses == nil {
			o.Layout.Statuses = map[driver.State]string{}
		}
		o.Layout.Statuses[st] = text
	}
	adopt, err := pairs(flag, "adopt", p.Get("adopt"))
	if err != nil {
		return o, err
	}
	for text, name := range adopt {
		st, ok := driver.ParseState(strings.ToUpper(name))
		if !ok {
			return o, unknownState(flag, "adopt", name)
		}
		if o.Layout.Adopt == nil {
			o.Layout.Adopt = map[string]driver.State{}
		}
		o.Layout.Adopt[text] = st
	}
	return o, nil
}

// pairs reads a parameter of the form a:b,c:d.
func pairs(flag, param, raw string) (map[string]string, error) {
	if raw == "" {
		return nil, nil
	}
	out := map[string]string{}
	for _, part := range strings.Split(raw, ",") {
		a, b, ok := strings.Cut(part, ":")
		if _, twice := out[a]; !ok || a == "" || b == "" || twice {
			return nil, output.Usage("--%s: %s=%s is not a list of pairs", flag, param, raw).
				WithHint("statuses=COMPLETED:DONE,IN_PROGRESS:STARTED (state:text), adopt=STARTED:ABSENT,DONE:COMPLETED (text:state)")
		}
		out[a] = b
	}
	return out, nil
}

func unknownState(flag, param, name string) error {
	var known []string
	for st := driver.Absent; st <= driver.Uncertain; st++ {
		known = append(known, st.String())
	}
	return output.Usage("--%s: %s= has the unknown state %q (known: %s)", flag, param, name, strings.Join(known, ", "))
}
