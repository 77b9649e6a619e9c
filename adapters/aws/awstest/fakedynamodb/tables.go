package fakedynamodb

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

type throughput struct{ ReadCapacityUnits, WriteCapacityUnits int64 }

type createInput struct {
	TableName            string
	AttributeDefinitions []struct{ AttributeName, AttributeType string }
	KeySchema            []struct{ AttributeName, KeyType string }
	BillingMode          string

	ProvisionedThroughput     *throughput
	DeletionProtectionEnabled bool
	TableClass                string
	// Without influence on what can be seen here.
	Tags             json.RawMessage
	SSESpecification json.RawMessage
}

func (r *request) createTable(in createInput) (any, error) {
	if err := tableName(in.TableName); err != nil {
		return nil, err
	}
	t := &table{
		name: in.TableName, created: r.now, active: r.now.Add(r.s.o.CreateLag), protected: in.DeletionProtectionEnabled,
		class: in.TableClass, billing: in.BillingMode, id: fmt.Sprintf("00000000-0000-4000-8000-%012d", r.s.chance.Int64N(1e12)),
	}
	if err := t.schema(in); err != nil {
		return nil, err
	}
	if err := t.throughput(in); err != nil {
		return nil, err
	}
	if r.s.tables[t.name] != nil {
		return nil, fault("ResourceInUseException", "Table already exists: %s", t.name)
	}
	r.s.tables[t.name] = t
	d := t.describe(r.now)
	d["TableStatus"] = "CREATING"
	return map[string]any{"TableDescription": d}, nil
}

// schema reads the key schema and the types of its attributes.
func (t *table) schema(in createInput) error {
	kinds := map[string]string{}
	for _, d := range in.AttributeDefinitions {
		if err := enum(d.AttributeType, "attributeDefinitions.1.member.attributeType", "B", "N", "S"); err != nil {
			return err
		}
		kinds[d.AttributeName] = d.AttributeType
	}
	if len(in.KeySchema) == 0 || len(in.KeySchema) > 2 {
		return invalid(
			"1 validation error detected: Value '%v' at 'keySchema' failed to satisfy constraint: Member must have length between 1 and 2", in.KeySchema)
	}
	for i, k := range in.KeySchema {
		if want := []string{"HASH", "RANGE"}[i]; k.KeyType != want {
			return invalid("Invalid KeySchema: Element %d of the KeySchema is not a %s key type", i, want)
		}
		if kinds[k.AttributeName] == "" {
			return invalid(
				"One or more parameter values were invalid: Some index key attributes are not defined in AttributeDefinitions. Keys: [%s], AttributeDefinitions: %v",
				k.AttributeName, slices.Sorted(maps.Keys(kinds)))
		}
		t.keys = append(t.keys, attribute{k.AttributeName, kinds[k.AttributeName]})
	}
	if len(kinds) != len(t.keys) {
		return invalid(
			"One or more parameter values were invalid: Number of attributes in KeySchema does not exactly match number of attributes defined in AttributeDefinitions")
	}
	return nil
}

func (t *table) throughput(in createInput) error {
	if err := enum(in.BillingMode, "billingMode", "", "PROVISIONED", "PAY_PER_REQUEST"); err != nil {
		return err
	}
	onDemand := in.BillingMode == "PAY_PER_REQUEST"
	switch p := in.ProvisionedThroughput; {
	case onDemand && p != nil:
		return invalid(
			"One or more parameter values were invalid: Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
	case !onDemand && p == nil:
		return invalid(
			"One or more parameter values were invalid: ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED")
	case !onDemand && (p.ReadCapacityUnits < 1 || p.WriteCapacityUnits < 1):
		return invalid(
			"1 validation error detected: Value '%v' at 'provisionedThroughput' failed to satisfy constraint: Member must have value greater than or equal to 1", *p)
	case p != nil:
		t.read, t.write = p.ReadCapacityUnits, p.WriteCapacityUnits
	}
	return nil
}

// describe is the TableDescription.
func (t *table) describe(now time.Time) map[string]any {
	n, size := t.live()
	var definitions, schema []any
	for i, k := range t.keys {
		definitions = append(definitions, map[string]any{"AttributeName": k.name, "AttributeType": k.kind})
		schema = append(schema, map[string]any{"AttributeName": k.name, "KeyType": []string{"HASH", "RANGE"}[i]})
	}
	d := map[string]any{
		"TableName": t.name, "TableStatus": "ACTIVE", "TableId": t.id, "CreationDateTime": float64(t.created.UnixMilli()) / 1e3,
		"TableArn":             "arn:aws:dynamodb:" + awstest.Region + ":" + awstest.Account + ":table/" + t.name,
		"AttributeDefinitions": definitions, "KeySchema": schema, "ItemCount": n, "TableSizeBytes": size,
		"DeletionProtectionEnabled": t.protected,
		"ProvisionedThroughput": map[string]any{
			"ReadCapacityUnits": t.read, "WriteCapacityUnits": t.write, "NumberOfDecreasesToday": 0,
		},
	}
	if t.billing == "PAY_PER_REQUEST" {
		d["BillingModeSummary"] = map[string]any{"BillingMode": t.billing,
			"LastUpdateToPayPerRequestDateTime": d["CreationDateTime"]}
	}
	if t.class != "" {
		d["TableClassSummary"] = map[string]any{"TableClass": t.class}
	}
	if now.Before(t.active) {
		d["TableStatus"] = "CREATING"
	}
	return d
}

type tableInput struct{ TableName string }

func (r *request) describeTable(in tableInput) (any, error) {
	t, err := r.any(in.TableName)
	if err != nil {
		return nil, err
	}
	return map[string]any{"Table": t.describe(r.now)}, nil
}

// any finds a table that may not be ACTIVE yet.
func (r *request) any(name string) (*table, error) {
	if err := tableName(name); err != nil {
		return nil, err
	}
	if t := r.s.tables[name]; t != nil {
		return t, nil
	}
	return nil, notFound("Requested resource not found: Table: %s not found", name)
}

func (r *request) deleteTable(in tableInput) (any, error) {
	t, err := r.any(in.TableName)
	if err != nil {
		return nil, err
	}
	if r.now.Before(t.active) {
		return nil, fault("ResourceInUseException",
			"Attempt to change a resource which is still in use: Table is being created: %s", t.name)
	}
	if t.protected {
		return nil, invalid(
			"Resource cannot be deleted as it is currently protected against deletion. Disable deletion protection first.")
	}
	delete(r.s.tables, t.name)
	d := t.describe(r.now)
	d["TableStatus"] = "DELETING"
	return map[string]any{"TableDescription": d}, nil
}

type listInput struct {
	ExclusiveStartTableName string
	Limit                   *int
}

func (r *request) listTables(in listInput) (any, error) {
	limit := 100
	if in.Limit != nil {
		limit = *in.Limit
	}
	if limit < 1 || limit > 100 {
		return nil, invalid(
			"1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: Member must have value between 1 and 100", limit)
	}
	names := slices.Sorted(maps.Keys(r.s.tables))
	names = slices.DeleteFunc(names, func(n string) bool { return n <= in.ExclusiveStartTableName })
	out := map[string]any{}
	if len(names) > limit {
		names = names[:limit]
		out["LastEvaluatedTableName"] = names[limit-1]
	}
	out["TableNames"] = append([]string{}, names...)
	return out, nil
}
