package dynamodb

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// Levels of a [Fact].
const (
	FactOK      = "ok"
	FactWarning = "warning"
	FactDanger  = "danger"
)

// Fact is one finding of [Examine] about a table: how serious it is, what was found, and what to try.
type Fact struct{ Level, Check, Detail, Try string }

// Examine checks whether a table suits a store that is opened with these options. It changes nothing and reads no record. An
// error means that the table could not be examined. A check that needs more IAM actions than dynamodb:DescribeTable
// (DescribeTimeToLive, DescribeContinuousBackups) reports when they are denied.
func Examine(ctx context.Context, client AdminClient, table string, o Options) ([]Fact, error) {
	sh, err := o.shape()
	if err != nil {
		return nil, fmt.Errorf("examine table %q: Options.%w", table, err)
	}
	want := sh.table()
	out, err := client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return nil, fmt.Errorf("examine table %q: %w", table, explain(err, "DescribeTable", table))
	}
	d := out.Table
	if d == nil {
		return nil, fmt.Errorf("examine table %q: DescribeTable returned no description of it", table)
	}
	facts := []Fact{factStatus(d), factKeys(d, want)}
	ttl, err := factTTL(ctx, client, table, sh)
	if err != nil {
		return nil, fmt.Errorf("examine table %q: %w", table, err)
	}
	facts = append(facts, ttl, factBilling(d), factReplicas(d), factDeletion(d), factRecovery(ctx, client, table))
	if skew, ok := awsmiddleware.GetAttemptSkew(out.ResultMetadata); ok {
		facts = append(facts, factClock(skew, o.skew()))
	}
	return facts, nil
}

func factStatus(d *types.TableDescription) Fact {
	f := Fact{Level: FactOK, Check: "table", Detail: fmt.Sprintf("%s is %s and has about %d items, %d bytes",
		aws.ToString(d.TableName), d.TableStatus, aws.ToInt64(d.ItemCount), aws.ToInt64(d.TableSizeBytes))}
	switch d.TableStatus {
	case types.TableStatusActive, types.TableStatusUpdating:
	case types.TableStatusCreating:
		f.Level, f.Try = FactWarning, "wait until it is ACTIVE: until then no record can be written"
	default:
		f.Level, f.Try = FactDanger, "no record can be written while it is in this status"
	}
	return f
}

func factKeys(d *types.TableDescription, want layout) Fact {
	if err := want.check(d); err != nil {
		return Fact{Level: FactDanger, Check: "table keys", Detail: err.Error(),
			Try: "name the table's own keys in the options, or create a table with semel migrate"}
	}
	return Fact{Level: FactOK, Check: "table keys", Detail: list(keysOf(d))}
}

// factTTL checks the time to live. DynamoDB deletes records within a few days after their retention, never earlier. A store
// that still reads such a record knows that its retention has ended.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html
func factTTL(ctx context.Context, client AdminClient, table string, sh *shape) (Fact, error) {
	f := Fact{Check: "time to live"}
	out, err := client.DescribeTimeToLive(ctx, &awsdynamodb.DescribeTimeToLiveInput{TableName: &table})
	if denied(err) {
		f.Level, f.Detail = FactWarning, "not known: "+explainOnly(err, "DescribeTimeToLive", table)
		f.Try = "allow it, or make sure that the table's time to live is on attribute " + sh.ttl
		return f, nil
	}
	if err != nil {
		return f, fmt.Errorf("read its time to live: %w", explain(err, "DescribeTimeToLive", table))
	}
	switch on, attr := ttlOf(out.TimeToLiveDescription); {
	case on && attr == sh.ttl:
		f.Level, f.Detail = FactOK, "items are deleted by attribute "+attr+", within a few days after it"
	case on && sh.writes(attr):
		f.Level = FactDanger
		f.Detail = fmt.Sprintf("items are deleted by attribute %q, which is not the end of retention: records would be gone while "+
			"their duplicates can still arrive", attr)
		f.Try = "switch the table's time to live to attribute " + sh.ttl
	case on:
		f.Level = FactWarning
		f.Detail = fmt.Sprintf("items are deleted by attribute %q, but the end of a record is in %q: records are kept until a sweep "+
			"reads the whole table", attr, sh.ttl)
		f.Try = "switch the table's time to live to attribute " + sh.ttl
	default:
		f.Level, f.Detail = FactWarning, "off: records that are past their retention are kept until a sweep reads the whole table"
		f.Try = "switch it on, by attribute " + sh.ttl + " (semel migrate does); it costs nothing"
	}
	return f, nil
}

// explainOnly returns the explanation of an error without the error.
func explainOnly(err error, action, table string) string {
	if why := reason(err, action, table); why != "" {
		return why
	}
	return err.Error()
}

func factBilling(d *types.TableDescription) Fact {
	f := Fact{Level: FactOK, Check: "billing mode", Detail: "on demand"}
	if d.BillingModeSummary != nil && d.BillingModeSummary.BillingMode == types.BillingModePayPerRequest {
		if t := d.OnDemandThroughput; t != nil && aws.ToInt64(t.MaxWriteRequestUnits) > 0 {
			f.Level = FactWarning
			f.Detail += fmt.Sprintf(", with at most %d write units a second: about %d messages a second, more are throttled",
				*t.MaxWriteRequestUnits, *t.MaxWriteRequestUnits/2)
			f.Try = "raise the table's maximum of write units above twice the rate of messages"
		}
		return f
	}
	read, write := int64(0), int64(0)
	if t := d.ProvisionedThroughput; t != nil {
		read, write = aws.ToInt64(t.ReadCapacityUnits), aws.ToInt64(t.WriteCapacityUnits)
	}
	// A message is two writes of a small record: its claim and its end.
	f.Level = FactWarning
	f.Detail = fmt.Sprintf("provisioned, %d read and %d write units: about %d messages a second, more are throttled and wait",
		read, write, write/2)
	f.Try = "bill the table on demand, or let its capacity scale with the rate of messages"
	return f
}

// factReplicas checks for replicas in other regions. With eventual consistency each region checks conditions on its own
// copy, and the later of two concurrent writes wins: a key can be claimed in two regions. With strong consistency conditions
// hold, but there are neither transactions nor a time to live.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html
func factReplicas(d *types.TableDescription) Fact {
	f := Fact{Level: FactOK, Check: "replicas", Detail: "none: one region decides"}
	if len(d.Replicas) == 0 {
		return f
	}
	regions := make([]string, 0, len(d.Replicas))
	for _, r := range d.Replicas {
		regions = append(regions, aws.ToString(r.RegionName))
	}
	f.Detail = "a global table, with replicas in " + strings.Join(regions, ", ")
	if d.MultiRegionConsistency == types.MultiRegionConsistencyStrong {
		f.Level = FactWarning
		f.Detail += ", strongly consistent: effects cannot commit with their records, and records are not deleted by time to live"
		f.Try = "use handlers that are not transactional, and sweep (semel records sweep)"
		return f
	}
	f.Level = FactDanger
	f.Detail += ": each region decides for itself and the last writer wins, so a message that is handled in two regions takes " +
		"effect twice"
	f.Try = "run all consumers of a queue in one region, or use a table without replicas or with strong consistency"
	return f
}

func factDeletion(d *types.TableDescription) Fact {
	if aws.ToBool(d.DeletionProtectionEnabled) {
		return Fact{Level: FactOK, Check: "deletion protection", Detail: "on"}
	}
	return Fact{Level: FactWarning, Check: "deletion protection", Detail: "off: with the table all records would be gone, and every " +
		"later duplicate would run again", Try: "switch it on for a table that is in use"}
}

func factRecovery(ctx context.Context, client AdminClient, table string) Fact {
	f := Fact{Level: FactOK, Check: "point-in-time recovery"}
	out, err := client.DescribeContinuousBackups(ctx, &awsdynamodb.DescribeContinuousBackupsInput{TableName: &table})
	switch {
	case err != nil:
		f.Detail = "not known: " + explainOnly(err, "DescribeContinuousBackups", table)
	case out.ContinuousBackupsDescription != nil && out.ContinuousBackupsDescription.PointInTimeRecoveryDescription != nil &&
		out.ContinuousBackupsDescription.PointInTimeRecoveryDescription.PointInTimeRecoveryStatus == types.PointInTimeRecoveryStatusEnabled:
		f.Detail = "on; a restored table lacks the latest records, and locks on it need a new epoch"
	default:
		f.Detail = "off: records that are deleted by mistake cannot be restored"
	}
	return f
}

// factClock compares this machine's clock with the service's, which is in every response, in whole seconds. Takeovers
// compare the clocks of different machines, so they wait for the tolerated difference.
func factClock(skew, tolerated time.Duration) Fact {
	f := Fact{Level: FactOK, Check: "clock", Detail: fmt.Sprintf("within %v of DynamoDB's, tolerated are %v",
		max(skew.Abs().Round(time.Second), time.Second), tolerated)}
	if skew.Abs() > tolerated+time.Second {
		f.Level = FactDanger
		f.Detail = fmt.Sprintf("%v off DynamoDB's, tolerated are %v: leases of live workers look expired", skew.Abs().Round(time.Second), tolerated)
		f.Try = "synchronise the clock of this machine (NTP), or raise MaxClockSkew"
	}
	return f
}

// writes reports whether semel writes an attribute.
func (s *shape) writes(attr string) bool {
	for _, name := range s.names {
		if name == attr {
			return true
		}
	}
	return false
}
