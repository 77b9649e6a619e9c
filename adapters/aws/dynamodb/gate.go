package dynamodb

import (
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/driver"
)

// The gate is a second table with one row for every key that any consumer has completed. The row is written in the
// transaction that completes a record, on the condition that it does not exist. It is not read before: the records show what
// is in progress.

// gate returns the write of a completed record's row. It replaces the row if the same key is deliberately completed again:
// in another epoch (a new generation of a completed key), or in a newer version.
func (s *Store) gate(r *row) types.TransactWriteItem {
	item := attrs{
		s.shape.gateKey: &types.AttributeValueMemberS{Value: s.shape.gatePartition(r.Key)},
		"key":           text(r.Key.Raw), "consumer": text(r.Key.Consumer), "tenant": text(r.Key.Tenant),
		"epoch": number(r.Epoch), "version": binary([]byte(r.Watermark.Running)), "token": number(r.Token),
		"completed_at": number(r.CompletedAt.UnixMicro()),
		s.shape.ttl:    number(r.RetainUntil.Add(s.o.TTLSlack).Unix()),
	}
	if r.Key.Raw == "" || s.shape.gateKey == "key" {
		delete(item, "key")
	}
	item[s.shape.gateKey] = &types.AttributeValueMemberS{Value: s.shape.gatePartition(r.Key)}
	e := newExpression()
	e.and("attribute_not_exists(" + e.name(s.shape.gateKey) + ") OR " +
		e.name("consumer") + " = " + e.value(item["consumer"]) + " AND " + e.name("tenant") + " = " + e.value(item["tenant"]) +
		" AND (" + e.name("epoch") + " < " + e.value(item["epoch"]) + " OR " + e.name("version") + " < " + e.value(item["version"]) + ")")
	return types.TransactWriteItem{Put: &types.Put{
		TableName: &s.o.Gate, Item: item, ConditionExpression: e.condition(), ExpressionAttributeNames: e.names,
		ExpressionAttributeValues:           e.values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// gatePartition is the key of a row: the text of the key, for any consumer. A key without a text, or with a tenant, has the
// hash of tenant and text, because other tenants may use the same text.
func (s *shape) gatePartition(k driver.Key) string {
	if t := k.Raw; s.text != nil && k.Tenant == "" && t != "" && len(t) <= 1024 && utf8.ValidString(t) && !strings.HasPrefix(t, hashMark) {
		return t
	}
	h := driver.Key{Tenant: k.Tenant, Raw: k.Raw}.Hash()
	return hashMark + base64.RawURLEncoding.EncodeToString(h[:])
}

// gateIsOf checks that a row belongs to the key. Otherwise a message would be dropped, and lost, because of another key's
// row (I12).
func (s *shape) gateIsOf(k driver.Key, table string, item attrs) error {
	tenant, _ := asText(item["tenant"])
	raw, err := asText(item["key"])
	v, ok := item["key"]
	if mine := !ok || s.gateKey == "key" || err == nil && same(v, text(k.Raw)); mine && tenant == k.Tenant {
		return nil
	}
	return fmt.Errorf("key %q of tenant %q: its row in table %q is of another key, %q of tenant %q", k.Raw, k.Tenant, table, raw, tenant)
}
