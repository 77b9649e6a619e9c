package open

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/smithy-go/logging"

	"github.com/semel-dev/semel/cmd/semel/internal/output"
)

// awsPlace is what a URL of a service of AWS says. Credentials are never in it: they come from the SDK's usual chain.
type awsPlace struct {
	region, endpoint, profile string
	// name is that of the queue or table; own is the queue's own URL, "" where a name was given.
	name, own string
	// params are the other parameters.
	params url.Values
	// used is the region and endpoint that the SDK uses, for errors.
	used struct{ region, endpoint string }
}

// commonParams are the parameters of every URL of AWS.
var commonParams = []string{"region", "endpoint", "profile"}

// Lengths are not in the patterns of names, which would take long to compile at every start.
var regionName = regexp.MustCompile(`^[a-z0-9-]+$`)

func validRegion(name string) bool { return len(name) <= 40 && regionName.MatchString(name) }

// OnAWS reports that a URL names a place on SQS or DynamoDB.
func OnAWS(raw string) bool { return sqsKind.matches(raw) || dynamoKind.matches(raw) }

// AddParam puts a parameter into a URL of AWS, unless the URL says it already or is of a kind that has no such parameter.
func AddParam(raw, name, value string) (string, error) {
	k := sqsKind
	if dynamoKind.matches(raw) {
		k = dynamoKind
	}
	t, err := Parse("queue", raw)
	if err != nil || !slices.Contains(k.params, name) || t.aws.says(name) != "" {
		return raw, nil //nolint:nilerr // whoever opens it says what is wrong with it
	}
	sep := "?"
	if strings.Contains(raw, "?") {
		sep = "&"
	}
	raw += sep + name + "=" + url.QueryEscape(value)
	_, err = Parse("queue", raw)
	return raw, err
}

// CheckParam refuses a URL of AWS that says something else about a parameter than its flag does.
func CheckParam(flag, raw, name, want string) error {
	t, err := Parse(flag, raw)
	if err != nil || t.aws == nil || t.aws.says(name) == want {
		return err
	}
	return output.Usage("--%s %s and --%s %s say different things about the %s (%s)", name, want, flag, t.Shown, name, t.aws.says(name)).
		WithHint("leave one of them away")
}

func (a *awsPlace) says(name string) string {
	switch name {
	case "region":
		return a.region
	case "endpoint":
		return a.endpoint
	case "profile":
		return a.profile
	}
	return a.params.Get(name)
}

// splitAWS reads the parts that all URLs of AWS have; it refuses those with credentials without showing them.
func splitAWS(flag, raw, form string, params []string) (*url.URL, *awsPlace, error) {
	_, rest, ok := strings.Cut(raw, "://")
	authority, _, _ := strings.Cut(rest, "?")
	if strings.Contains(authority, "@") {
		return nil, nil, output.Usage("--%s has a user or a password in it: credentials do not belong into a URL of AWS", flag).
			WithHint("set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; ?profile=NAME names a profile")
	}
	u, err := url.Parse(raw)
	if err != nil || !ok || strings.Contains(raw, "#") {
		return nil, nil, output.Usage("--%s is not a URL of the form %s", flag, form).WithHint("--%s '%s'", flag, form)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, output.Usage("--%s: its query cannot be read: write %% as %%25 and & as %%26", flag)
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if output.SecretParam(name) {
			return nil, nil, output.Usage("--%s: parameter %q: credentials do not belong into a URL", flag, name).
				WithHint("set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
		}
	}
	if err := checkParams(flag, q, params, ""); err != nil {
		return nil, nil, err
	}
	a := &awsPlace{region: q.Get("region"), endpoint: q.Get("endpoint"), profile: q.Get("profile"), params: q}
	for _, name := range commonParams {
		q.Del(name)
	}
	if a.region != "" && !validRegion(a.region) {
		return nil, nil, output.Usage("--%s: region %q is not the name of a region", flag, a.region).WithHint("region=eu-west-1")
	}
	if e, err := url.Parse(a.endpoint); a.endpoint != "" &&
		(err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.User != nil || e.RawQuery != "") {
		return nil, nil, output.Usage("--%s: its endpoint is not a plain http or https URL", flag).WithHint("endpoint=http://127.0.0.1:4566")
	}
	return u, a, nil
}

// place tells places on AWS apart: what is opened with other parameters is another one.
func (a *awsPlace) place(kind string) string {
	return strings.Join([]string{kind, a.region, a.endpoint, a.profile, a.params.Encode()}, " ")
}

// waitForCredentials bounds the search for credentials. It ends at the metadata service of EC2, which never responds on other
// machines.
const waitForCredentials = 5 * time.Second

// load finds region and credentials, by the SDK's usual chain: environment, shared files and SSO, web identity, container,
// EC2. It asks no service of its own.
func (a *awsPlace) load(ctx context.Context, t Target) (aws.Config, error) {
	cfg, err := a.configure(ctx, t)
	if err != nil {
		return cfg, err
	}
	find, cancel := context.WithTimeout(ctx, waitForCredentials)
	defer cancel()
	if _, err := cfg.Credentials.Retrieve(find); err != nil {
		if ctx.Err() != nil {
			return cfg, ctx.Err()
		}
		e := &output.Error{Code: output.CodeUnreachable, Err: &worded{"open " + t.Shown + ": there are no credentials for AWS", err}}
		return cfg, e.WithHint("set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (for a local endpoint any value " +
			"will do), or give the machine, container or function a role")
	}
	return cfg, nil
}

// configure is load without credentials: it asks nobody.
func (a *awsPlace) configure(ctx context.Context, t Target) (aws.Config, error) {
	client := awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 5 * time.Second }). // the SDK's own is 30 s
		WithTransportOptions(func(tr *http.Transport) { tr.MaxIdleConnsPerHost = 64 })
	with := []func(*awsconfig.LoadOptions) error{
		awsconfig.WithHTTPClient(client),
		awsconfig.WithLogger(logging.Nop{}), // the SDK's own writes to stderr; what goes wrong comes as an error, too
	}
	if a.region != "" {
		with = append(with, awsconfig.WithRegion(a.region))
	}
	if a.profile != "" {
		with = append(with, awsconfig.WithSharedConfigProfile(a.profile))
	}
	cfg, err := awsconfig.LoadDefaultConfig(ctx, with...)
	if missing := (awsconfig.SharedConfigProfileNotExistError{}); errors.As(err, &missing) {
		return cfg, output.Usage("%s: the profile %q is not in the files of AWS", t.Shown, missing.Profile).
			WithHint("aws configure list-profiles; --profile, ?profile= or AWS_PROFILE names another")
	}
	if err != nil {
		return cfg, output.Usage("%s: read the configuration of AWS: %w", t.Shown, err)
	}
	if cfg.Region == "" {
		return cfg, output.Usage("%s: no region is given", t.Shown).WithHint("--region eu-west-1, ?region= in the URL, or AWS_REGION")
	}
	if a.endpoint != "" {
		cfg.BaseEndpoint = aws.String(a.endpoint)
	}
	a.used.region, a.used.endpoint = cfg.Region, aws.ToString(cfg.BaseEndpoint)
	if a.endpoint == "" {
		a.used.endpoint = cmp.Or(os.Getenv(endpointVariable(t.Scheme)), a.used.endpoint)
	}
	return cfg, nil
}

// endpointVariable is where the SDK looks for the endpoint of one service.
func endpointVariable(scheme string) string { return "AWS_ENDPOINT_URL_" + strings.ToUpper(scheme) }

// Located is the region, profile or endpoint of a place on AWS, and where that comes from.
type Located struct{ Name, Value, From string }

// Locate finds out where on AWS a URL leads, as the SDK does. It asks no service.
func Locate(ctx context.Context, flag, raw string) ([]Located, error) {
	t, err := Parse(flag, raw)
	if err != nil || t.aws == nil {
		return nil, err
	}
	cfg, err := t.aws.configure(ctx, t)
	if err != nil {
		return nil, err
	}
	var at []Located
	add := func(name, value, said string, variables ...string) {
		from := "files of AWS"
		for i := len(variables) - 1; i >= 0; i-- {
			if v := os.Getenv(variables[i]); v != "" && v == value {
				from = variables[i]
			}
		}
		if said != "" {
			value, from = said, "URL"
		}
		if value != "" {
			at = append(at, Located{name, value, from})
		}
	}
	add("region", cfg.Region, t.aws.region, "AWS_REGION", "AWS_DEFAULT_REGION")
	add("profile", os.Getenv("AWS_PROFILE"), t.aws.profile, "AWS_PROFILE")
	endpoint := endpointVariable(t.Scheme)
	value := os.Getenv(endpoint)
	if value == "" {
		value = os.Getenv("AWS_ENDPOINT_URL")
	}
	add("endpoint", value, t.aws.endpoint, endpoint, "AWS_ENDPOINT_URL")
	return at, nil
}

// ofARN is the URL of the queue or table that an ARN names, "" for anything else.
func ofARN(raw string) string {
	part := strings.SplitN(raw, ":", 6) // arn:aws:sqs:REGION:ACCOUNT:NAME
	if len(part) != 6 || part[0] != "arn" {
		return ""
	}
	name, table := strings.CutPrefix(part[5], "table/")
	switch {
	case part[2] == "sqs" && validQueueName(name) && accountID.MatchString(part[4]) && validRegion(part[3]):
		return "https://sqs." + part[3] + ".amazonaws.com/" + part[4] + "/" + name
	case part[2] == "dynamodb" && table && validTableName(name) && validRegion(part[3]):
		return "dynamodb://" + name + "?region=" + part[3]
	}
	return ""
}
