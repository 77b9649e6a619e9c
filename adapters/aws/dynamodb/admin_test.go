package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/semel-dev/semel/adapters/aws/awstest"
)

// testCreate creates and examines tables.
func testCreate(t *testing.T, client AdminClient) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		if err := Create(ctx, client, "made", CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	facts, err := Examine(ctx, client, "made", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for check, want := range map[string]Fact{
		"table":        {Level: FactOK, Detail: "made is ACTIVE"},
		"table keys":   {Level: FactOK, Detail: "pk (S, partition key) and sk (S, sort key)"},
		"time to live": {Level: FactOK, Detail: "by attribute ttl"},
		"billing mode": {Level: FactOK, Detail: "on demand"},
		"replicas":     {Level: FactOK, Detail: "none"},
	} {
		if got := factOf(facts, check); got.Level != want.Level || !strings.Contains(got.Detail, want.Detail) {
			t.Errorf("%s: %+v, wanted %s and %q", check, got, want.Level, want.Detail)
		}
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if err := Create(ctx, client, "by-many-at-once", CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	other := CreateOptions{Options: Options{Layout: Layout{PartitionKey: "file_key"}}}
	if err := Create(ctx, client, "of-files", other); err != nil {
		t.Fatal(err)
	}
	err = Create(ctx, client, "of-files", CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "file_key (S, partition key)") || !strings.Contains(err.Error(), "pk (S, partition key)") {
		t.Errorf("a table with other keys: %v; wanted an error that names both", err)
	}
	if facts, err := Examine(ctx, client, "of-files", Options{}); err != nil || factOf(facts, "table keys").Level != FactDanger {
		t.Errorf("examining a table with other keys: %v, %+v", err, factOf(facts, "table keys"))
	}
	if facts, err := Examine(ctx, client, "of-files", other.Options); err != nil || factOf(facts, "table keys").Level != FactOK {
		t.Errorf("examining a table with its own keys: %v, %+v", err, factOf(facts, "table keys"))
	}
	if _, err := Examine(ctx, client, "nowhere", Options{}); err == nil || !strings.Contains(err.Error(), `table "nowhere" does not exist`) {
		t.Errorf("examining a missing table: %v", err)
	}
}

func factOf(facts []Fact, check string) Fact {
	for _, f := range facts {
		if f.Check == check {
			return f
		}
	}
	return Fact{}
}

func TestS0_03_CreateMoto(t *testing.T) { testCreate(t, moto(t)) }

// TestCreateTTLOther: a table whose items are deleted by another attribute is not taken over silently.
func TestCreateTTLOtherMoto(t *testing.T) {
	client := moto(t)
	if err := Create(t.Context(), client, "t", CreateOptions{DeletionProtection: true, PointInTimeRecovery: true}); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{false, true} {
		attr := "ttl"
		if on {
			attr = "lease_until"
		}
		_, err := client.UpdateTimeToLive(t.Context(), &awsdynamodb.UpdateTimeToLiveInput{
			TableName:               aws.String("t"),
			TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &attr, Enabled: &on},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := Create(t.Context(), client, "t", CreateOptions{}); err == nil || !strings.Contains(err.Error(), `attribute "lease_until"`) {
		t.Errorf("a table with another time to live: %v", err)
	}
	facts, err := Examine(t.Context(), client, "t", Options{})
	if f := factOf(facts, "time to live"); err != nil || f.Level != FactDanger || f.Try == "" {
		t.Errorf("another time to live: %+v, %v", f, err)
	}
	if f := factOf(facts, "deletion protection"); f.Level != FactOK {
		t.Errorf("%+v", f)
	}
	if f := factOf(facts, "point-in-time recovery"); !strings.HasPrefix(f.Detail, "on") {
		t.Errorf("%+v", f)
	}
}

// canned responds to requests by their operation, in the order of the list.
func canned(responses map[string][]string) http.RoundTripper {
	var mu sync.Mutex
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		list := responses[op]
		if len(list) == 0 {
			list = []string{`400 {"__type":"AccessDeniedException","message":"User is not authorized to perform: dynamodb:` + op + `"}`}
		}
		if len(list) > 1 {
			responses[op] = list[1:]
		}
		var code int
		text, _, _ := strings.Cut(list[0], " ")
		_, _ = fmt.Sscan(text, &code)
		return &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: http.Header{},
			Body: io.NopCloser(strings.NewReader(list[0][len(text)+1:])),
		}, nil
	})
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func cannedClient(responses map[string][]string) *awsdynamodb.Client {
	return awsdynamodb.NewFromConfig(aws.Config{
		Region: awstest.Region, Credentials: credentials.NewStaticCredentialsProvider("semel", "semel", ""),
		HTTPClient: &http.Client{Transport: canned(responses)}, Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		BaseEndpoint: aws.String("http://canned.test"),
	})
}

const cannedTable = `200 {"Table":{"TableName":"t","TableStatus":"ACTIVE","KeySchema":[{"AttributeName":"pk","KeyType":"HASH"},` +
	`{"AttributeName":"sk","KeyType":"RANGE"}],"AttributeDefinitions":[{"AttributeName":"pk","AttributeType":"S"},` +
	`{"AttributeName":"sk","AttributeType":"S"}]`

// TestExamineFindings describes tables that no emulator has: each finding has its level, and a hint if it is a problem.
func TestExamineFindings(t *testing.T) {
	on := `200 {"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"ttl"}}`
	for _, x := range []struct{ name, table, ttl, check, level, detail string }{
		{"replicas", `,"Replicas":[{"RegionName":"eu-west-1"},{"RegionName":"us-east-2"}]`, on, "replicas", FactDanger, "eu-west-1, us-east-2"},
		{"strong replicas", `,"MultiRegionConsistency":"STRONG","Replicas":[{"RegionName":"eu-west-1"}]`, on, "replicas", FactWarning, "strongly"},
		{"provisioned", `,"ProvisionedThroughput":{"ReadCapacityUnits":5,"WriteCapacityUnits":10}`, on, "billing mode", FactWarning, "about 5 messages"},
		{"capped", `,"BillingModeSummary":{"BillingMode":"PAY_PER_REQUEST"},"OnDemandThroughput":{"MaxWriteRequestUnits":100}`, on, "billing mode", FactWarning, "about 50 messages"},
		{"ttl off", ``, `200 {"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`, "time to live", FactWarning, "off"},
		{"ttl being switched off", ``, `200 {"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLING","AttributeName":"ttl"}}`, "time to live", FactWarning, "off"},
		{"ttl by another", ``, `200 {"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLED","AttributeName":"gone_at"}}`, "time to live", FactWarning, `"gone_at"`},
		{"ttl denied", ``, `400 {"__type":"AccessDeniedException"}`, "time to live", FactWarning, "dynamodb:DescribeTimeToLive"},
		{"recovery denied", ``, on, "point-in-time recovery", FactOK, "dynamodb:DescribeContinuousBackups"},
	} {
		t.Run(x.name, func(t *testing.T) {
			facts, err := Examine(t.Context(), cannedClient(map[string][]string{
				"DescribeTable": {cannedTable + x.table + "}}"}, "DescribeTimeToLive": {x.ttl},
			}), "t", Options{})
			f := factOf(facts, x.check)
			if err != nil || f.Level != x.level || !strings.Contains(f.Detail, x.detail) || (f.Level != FactOK && f.Try == "") {
				t.Errorf("%v, %+v; wanted %s and %q", err, f, x.level, x.detail)
			}
		})
	}
	for skew, level := range map[time.Duration]string{0: FactOK, -9 * time.Second: FactOK, 12 * time.Second: FactDanger, -time.Hour: FactDanger} {
		if f := factClock(skew, 10*time.Second); f.Level != level {
			t.Errorf("a clock that is %v off: %+v", skew, f)
		}
	}
}

// TestCreateWaits: the table takes a while until it is visible and can be used, and another process may have created it.
func TestCreateWaits(t *testing.T) {
	missing := `400 {"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"}`
	creating := strings.Replace(cannedTable, "ACTIVE", "CREATING", 1) + "}}"
	on := `200 {"TimeToLiveDescription":{"TimeToLiveStatus":"ENABLING","AttributeName":"ttl"}}`
	responses := map[string][]string{
		"DescribeTable":      {missing, missing, creating, cannedTable + "}}"},
		"CreateTable":        {`400 {"__type":"com.amazonaws.dynamodb.v20120810#ResourceInUseException"}`},
		"DescribeTimeToLive": {`200 {"TimeToLiveDescription":{"TimeToLiveStatus":"DISABLED"}}`, on},
		"UpdateTimeToLive":   {`400 {"__type":"ValidationException","message":"TimeToLive is already enabled"}`},
	}
	if err := Create(t.Context(), cannedClient(responses), "t", CreateOptions{}); err != nil {
		t.Error(err)
	}
	deleting := strings.Replace(cannedTable, "ACTIVE", "DELETING", 1) + "}}"
	err := Create(t.Context(), cannedClient(map[string][]string{"DescribeTable": {deleting}}), "t", CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "DELETING") {
		t.Errorf("a table that is being deleted: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err = Create(ctx, cannedClient(map[string][]string{"DescribeTable": {creating}}), "t", CreateOptions{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a table that does not become active: %v", err)
	}
}

// TestErrorsNameTheHint: an error that a person can fix says how.
func TestErrorsNameTheHint(t *testing.T) {
	static := credentials.NewStaticCredentialsProvider("semel", "semel", "")
	html := roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusNotFound, Request: r, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("<html>"))}, nil
	})
	fails := func(err error) aws.HTTPClient {
		return &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })}
	}
	says := func(code string) aws.HTTPClient {
		return &http.Client{Transport: canned(map[string][]string{"DescribeTable": {`400 {"__type":"` + code + `"}`}})}
	}
	none := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no EC2 IMDS role found")
	})
	for _, x := range []struct {
		name, want string
		cfg        aws.Config
	}{
		{"no region", "no region is configured", aws.Config{Credentials: static}},
		{"no credentials", "no AWS credentials", aws.Config{Region: "r", Credentials: none}},
		{"unknown host", `no host "dynamodb.nowhere"`, aws.Config{Region: "r", Credentials: static, HTTPClient: fails(&net.DNSError{Name: "dynamodb.nowhere"})}},
		{"refused", "could not be reached", aws.Config{Region: "r", Credentials: static, HTTPClient: fails(errors.New("connection refused"))}},
		{"something else", "is not DynamoDB (HTTP 404 Not Found)", aws.Config{Region: "r", Credentials: static, HTTPClient: &http.Client{Transport: html}}},
		{"another service", "does not know the operation DescribeTable", aws.Config{Region: "r", Credentials: static, HTTPClient: says("UnknownOperationException")}},
		{"missing table", `table "t" does not exist`, aws.Config{Region: "r", Credentials: static, HTTPClient: says("ResourceNotFoundException")}},
		{"denied", "allow the IAM action dynamodb:DescribeTable", aws.Config{Region: "r", Credentials: static, HTTPClient: says("AccessDeniedException")}},
		{"unknown key", "not those of an account", aws.Config{Region: "r", Credentials: static, HTTPClient: says("UnrecognizedClientException")}},
		{"expired", "have expired", aws.Config{Region: "r", Credentials: static, HTTPClient: says("ExpiredTokenException")}},
		{"anonymous", "no AWS credentials", aws.Config{Region: "r", HTTPClient: says("MissingAuthenticationTokenException")}},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
			_, err := Examine(t.Context(), awsdynamodb.NewFromConfig(x.cfg), "t", Options{})
			if err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v\nwanted %q", err, x.want)
			}
		})
	}
	if err := explain(context.Canceled, "Query", "t"); !errors.Is(err, context.Canceled) || err.Error() != context.Canceled.Error() {
		t.Errorf("a cancelled call became %v", err)
	}
}

func TestS0_03_Create(t *testing.T) { testCreate(t, bareFake()) }

// TestOpenOnOtherKeys opens tables whose keys are not those in the options: the error explains that.
func TestOpenOnOtherKeys(t *testing.T) {
	r := newFixture(t, Options{})
	for name, kind := range map[string]types.ScalarAttributeType{"pk": types.ScalarAttributeTypeN, "other": types.ScalarAttributeTypeS} {
		_, err := r.client.CreateTable(t.Context(), &awsdynamodb.CreateTableInput{
			TableName: aws.String("by-" + name), BillingMode: types.BillingModePayPerRequest,
			AttributeDefinitions: []types.AttributeDefinition{{AttributeName: &name, AttributeType: kind}},
			KeySchema:            []types.KeySchemaElement{{AttributeName: &name, KeyType: types.KeyTypeHash}},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []Layout{{}, {PartitionKey: "pk"}} {
			if _, err := Open(t.Context(), r.client, "by-"+name, Options{Layout: l}); err == nil || !strings.Contains(err.Error(), "doctor") {
				t.Errorf("a table by %s (%s) with layout %+v: %v", name, kind, l, err)
			}
		}
	}
}
