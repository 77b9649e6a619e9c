package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// AdminClient is the part of *awsdynamodb.Client that creates and describes tables.
type AdminClient interface {
	CreateTable(context.Context, *awsdynamodb.CreateTableInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.CreateTableOutput, error)
	DescribeTable(context.Context, *awsdynamodb.DescribeTableInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.DescribeTableOutput, error)
	UpdateTimeToLive(context.Context, *awsdynamodb.UpdateTimeToLiveInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateTimeToLiveOutput, error)
	DescribeTimeToLive(context.Context, *awsdynamodb.DescribeTimeToLiveInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.DescribeTimeToLiveOutput, error)
	UpdateContinuousBackups(context.Context, *awsdynamodb.UpdateContinuousBackupsInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.UpdateContinuousBackupsOutput, error)
	DescribeContinuousBackups(context.Context, *awsdynamodb.DescribeContinuousBackupsInput, ...func(*awsdynamodb.Options)) (*awsdynamodb.DescribeContinuousBackupsOutput, error)
}

// CreateOptions describe a new table. The zero value is the documented default.
type CreateOptions struct {
	// Options are those of Open: they name the keys of the table.
	Options
	// DeletionProtection keeps the table from being deleted until it is switched off. Defaults to false.
	DeletionProtection bool
	// PointInTimeRecovery keeps continuous backups, whose price depends on the size of the table. Defaults to false.
	PointInTimeRecovery bool
	// Tags are tags of the table, for bills and policies.
	Tags map[string]string
}

// Create creates a table for records, billed on demand, and waits until it can be used or ctx is done. It enables the time
// to live, so that DynamoDB deletes records past their retention for free. Create may be repeated: an existing table with
// the right keys stays as it is, and only its time to live is switched on if it is off. A table with other keys, or with a
// time to live on another attribute, is an error. With Options.Gate Create creates that table too.
//
// It needs the IAM actions dynamodb:CreateTable, DescribeTable, DescribeTimeToLive and UpdateTimeToLive.
func Create(ctx context.Context, client AdminClient, table string, o CreateOptions) error {
	sh, err := o.shape()
	if err != nil {
		return fmt.Errorf("create table %q: Options.%w", table, err)
	}
	if err := create(ctx, client, table, sh.table(), &o); err != nil {
		return fmt.Errorf("create table %q: %w", table, err)
	}
	if o.Gate == "" {
		return nil
	}
	if err := create(ctx, client, o.Gate, layout{pk: sh.gateKey, ttl: sh.ttl}, &o); err != nil {
		return fmt.Errorf("create table %q (Options.Gate): %w", o.Gate, err)
	}
	return nil
}

// create creates one table and switches its time to live on.
func create(ctx context.Context, client AdminClient, table string, want layout, o *CreateOptions) error {
	d, err := describe(ctx, client, table)
	made := false
	if missing := (*types.ResourceNotFoundException)(nil); errors.As(err, &missing) {
		made, err = createTable(ctx, client, table, want, o)
	}
	if err != nil {
		return explain(err, "DescribeTable", table)
	}
	if d, err = active(ctx, client, table, d, made); err != nil {
		return err
	}
	if err := want.check(d); err != nil {
		return fmt.Errorf("it exists already: %w", err)
	}
	if err := enableTTL(ctx, client, table, want.ttl); err != nil {
		return err
	}
	if made && o.PointInTimeRecovery {
		return enableRecovery(ctx, client, table)
	}
	return nil
}

// layout is the keys of a table, and the attribute of its time to live.
type layout struct{ pk, sk, ttl string }

// check compares the keys of a table with those that the options name.
func (l layout) check(d *types.TableDescription) error {
	want := []string{l.pk + " (S, partition key)"}
	if l.sk != "" {
		want = append(want, l.sk+" (S, sort key)")
	}
	found := keysOf(d)
	if fmt.Sprint(found) == fmt.Sprint(want) {
		return nil
	}
	return fmt.Errorf("its keys are %s, wanted are %s: name them in the options, or use another table",
		list(found), list(want))
}

func list(names []string) string {
	text := ""
	for i, n := range names {
		if i > 0 {
			text += " and "
		}
		text += n
	}
	if text == "" {
		return "unknown"
	}
	return text
}

// keysOf names the keys of a table, the partition key first.
func keysOf(d *types.TableDescription) (keys []string) {
	kinds := map[string]types.ScalarAttributeType{}
	for _, a := range d.AttributeDefinitions {
		kinds[aws.ToString(a.AttributeName)] = a.AttributeType
	}
	for _, role := range []types.KeyType{types.KeyTypeHash, types.KeyTypeRange} {
		for _, k := range d.KeySchema {
			if k.KeyType == role {
				name, word := aws.ToString(k.AttributeName), "partition key"
				if role == types.KeyTypeRange {
					word = "sort key"
				}
				keys = append(keys, fmt.Sprintf("%s (%s, %s)", name, kinds[name], word))
			}
		}
	}
	return keys
}

func describe(ctx context.Context, client AdminClient, table string) (*types.TableDescription, error) {
	out, err := client.DescribeTable(ctx, &awsdynamodb.DescribeTableInput{TableName: &table})
	if err != nil {
		return nil, err
	}
	if out.Table == nil {
		return nil, errors.New("DescribeTable returned no description of it")
	}
	return out.Table, nil
}

// createTable creates the table. made is false when another process created it in the meantime.
func createTable(ctx context.Context, client AdminClient, table string, l layout, o *CreateOptions) (made bool, err error) {
	in := &awsdynamodb.CreateTableInput{
		TableName:            &table,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &l.pk, AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: &l.pk, KeyType: types.KeyTypeHash}},
	}
	if l.sk != "" {
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: &l.sk, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &l.sk, KeyType: types.KeyTypeRange})
	}
	if o.DeletionProtection {
		in.DeletionProtectionEnabled = aws.Bool(true)
	}
	for k, v := range o.Tags {
		in.Tags = append(in.Tags, types.Tag{Key: aws.String(k), Value: aws.String(v)})
	}
	_, err = client.CreateTable(ctx, in)
	if other := (*types.ResourceInUseException)(nil); errors.As(err, &other) {
		return false, nil
	}
	return err == nil, explain(err, "CreateTable", table)
}

// active waits until a table can be used. d is its last description, nil right after it was created: then it may take a
// while until DescribeTable finds it.
func active(
	ctx context.Context, client AdminClient, table string, d *types.TableDescription, made bool,
) (*types.TableDescription, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		switch {
		case d == nil:
		case d.TableStatus == types.TableStatusActive, d.TableStatus == types.TableStatusUpdating && !made:
			return d, nil // a table can be used while it is being updated
		case d.TableStatus != types.TableStatusCreating && d.TableStatus != types.TableStatusUpdating:
			return nil, fmt.Errorf("its status is %s: wait until that has ended, or use another table", d.TableStatus)
		}
		if d != nil {
			if err := sleep(ctx, pause); err != nil {
				return nil, fmt.Errorf("wait until it is ACTIVE: %w", err)
			}
		}
		next, err := describe(ctx, client, table)
		missing := (*types.ResourceNotFoundException)(nil)
		switch {
		case errors.As(err, &missing):
			if err := sleep(ctx, pause); err != nil {
				return nil, fmt.Errorf("wait until it exists: %w", err)
			}
		case err != nil:
			return nil, explain(err, "DescribeTable", table)
		default:
			d = next
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enableTTL lets DynamoDB delete items by attr, in which records have the time of their end.
func enableTTL(ctx context.Context, client AdminClient, table, attr string) error {
	out, err := client.DescribeTimeToLive(ctx, &awsdynamodb.DescribeTimeToLiveInput{TableName: &table})
	if err != nil {
		return fmt.Errorf("read its time to live: %w", explain(err, "DescribeTimeToLive", table))
	}
	switch on, other := ttlOf(out.TimeToLiveDescription); {
	case on && other == attr:
		return nil
	case on:
		return fmt.Errorf("its time to live is on attribute %q, records use %q: switch the table to that, "+
			"or name the other attribute in the options", other, attr)
	}
	_, err = client.UpdateTimeToLive(ctx, &awsdynamodb.UpdateTimeToLiveInput{
		TableName:               &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attr, Enabled: aws.Bool(true)},
	})
	if err == nil {
		return nil
	}
	// If two processes create the table at once, the other one may have switched it on.
	if out, again := client.DescribeTimeToLive(ctx, &awsdynamodb.DescribeTimeToLiveInput{TableName: &table}); again == nil {
		if on, name := ttlOf(out.TimeToLiveDescription); on && name == attr {
			return nil
		}
	}
	return fmt.Errorf("switch its time to live on: %w", explain(err, "UpdateTimeToLive", table))
}

// ttlOf returns the attribute by which items are deleted; on is false when they are not.
func ttlOf(d *types.TimeToLiveDescription) (on bool, attr string) {
	if d == nil {
		return false, ""
	}
	on = d.TimeToLiveStatus == types.TimeToLiveStatusEnabled || d.TimeToLiveStatus == types.TimeToLiveStatusEnabling
	return on, aws.ToString(d.AttributeName)
}

func enableRecovery(ctx context.Context, client AdminClient, table string) error {
	_, err := client.UpdateContinuousBackups(ctx, &awsdynamodb.UpdateContinuousBackupsInput{
		TableName:                        &table,
		PointInTimeRecoverySpecification: &types.PointInTimeRecoverySpecification{PointInTimeRecoveryEnabled: aws.Bool(true)},
	})
	if err != nil {
		return fmt.Errorf("switch point-in-time recovery on: %w", explain(err, "UpdateContinuousBackups", table))
	}
	return nil
}
