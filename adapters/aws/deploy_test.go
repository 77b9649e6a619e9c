package aws_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/semel-dev/semel"
	"github.com/semel-dev/semel/adapters/aws/awstest/moto"
	"github.com/semel-dev/semel/adapters/aws/dynamodb"
	"github.com/semel-dev/semel/adapters/aws/sqs"
	"github.com/semel-dev/semel/key"
	"github.com/semel-dev/semel/semeltest"
	"github.com/semel-dev/semel/semeltest/server"
)

// module is a copy of deploy/aws/terraform that terraform may write to.
type module struct {
	t   *testing.T
	dir string
	env []string
}

// checked is the digest of deploy/aws/terraform when terraform last accepted it.
const checked = "ab5af2810ff409b6"

// initialised copies the module and initialises it with a provider from this machine: tests contact no registry. Terraform
// takes a minute, so it runs only when the module changed, and nightly.
func initialised(t *testing.T) *module {
	t.Helper()
	t.Parallel() // terraform mostly waits
	if sum := digest(t); sum != checked {
		t.Cleanup(func() {
			if !t.Failed() && !t.Skipped() {
				t.Errorf("terraform accepts the changed module: set the constant checked to %q", sum)
			}
		})
	} else if !semeltest.Nightly() {
		t.Skip("terraform has accepted this module before; make nightly runs it again")
	}
	server.Command(t, "terraform", "see terraform.io")
	plugins := providers()
	if plugins == "" {
		server.LeaveOut(t, "terraform", "its provider hashicorp/aws is in no local mirror; SEMEL_TERRAFORM_PLUGINS names one")
	}
	m := &module{t: t, dir: t.TempDir(), env: append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1", "TF_CLI_CONFIG_FILE=/dev/null")}
	if err := os.CopyFS(m.dir, os.DirFS(filepath.Join("..", "..", "deploy", "aws", "terraform"))); err != nil {
		t.Fatal(err)
	}
	m.run("init", "-no-color", "-input=false", "-backend=false", "-plugin-dir="+plugins)
	return m
}

func digest(t *testing.T) string {
	t.Helper()
	files, err := os.ReadDir(filepath.Join("..", "..", "deploy", "aws", "terraform"))
	if err != nil {
		t.Fatal(err)
	}
	h := sha256.New()
	for _, f := range files {
		if strings.HasSuffix(f.Name(), ".tf") {
			fmt.Fprintf(h, "%s\n%s\n", f.Name(), deployed(t, filepath.Join("terraform", f.Name())))
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// providers is a directory with the provider: the one that SEMEL_TERRAFORM_PLUGINS names, or the first of the usual places that has it.
func providers() string {
	home, _ := os.UserHomeDir()
	for _, place := range []string{
		os.Getenv("SEMEL_TERRAFORM_PLUGINS"), filepath.Join(home, ".terraform.d", "plugins"),
		"/usr/local/share/terraform/plugins", "/usr/share/terraform/plugins", "/opt/*",
	} {
		if place == "" {
			continue
		}
		found, _ := filepath.Glob(filepath.Join(place, "registry.terraform.io", "hashicorp", "aws"))
		if len(found) > 0 {
			return filepath.Dir(filepath.Dir(filepath.Dir(found[0])))
		}
	}
	return ""
}

func (m *module) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "terraform", args...)
	c.Dir, c.Env = m.dir, m.env
	b, err := c.CombinedOutput()
	return string(b), err
}

func (m *module) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		m.t.Fatalf("terraform %s: %v\n%s", args[0], err, out)
	}
	return out
}

// TestS3_44TerraformModule checks that the module is valid, takes the variables of the demonstration, and refuses values that
// would lose or double messages with an explanation.
func TestS3_44TerraformModule(t *testing.T) {
	m := initialised(t)
	m.run("validate", "-no-color")
	m.run("fmt", "-check", "-no-color")
	m.env = append(m.env, "AWS_ENDPOINT_URL="+moto.Start(t), "AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel",
		"AWS_EC2_METADATA_DISABLED=true")
	plan := m.run("plan", "-no-color", "-input=false", "-var", "aws_region=us-west-1", "-var", "project_name=sqs-demo",
		"-var", "queue_visibility_timeout=10", "-var", "queue_receive_wait=10", "-var", "state_machine=CSV-Processing", "-var", "audited=true",
		"-var", `service={image="worker:1",subnets=["subnet-1"],security_groups=["sg-1"]}`)
	for _, want := range []string{
		"aws_sqs_queue.main", "aws_dynamodb_table.records", "aws_appautoscaling_policy.backlog",
		"deletion_protection_enabled = true",
		`alarm_name                            = "StepFunctions-Duplicate-Executions"`, "aws_cloudwatch_metric_alarm.audit_missing",
	} {
		if !strings.Contains(plan, want) {
			t.Errorf("the plan has no %s", want)
		}
	}
	if t.Failed() {
		t.Log(plan)
	}
	// One plan reports every value that is refused.
	out, err := m.try("plan", "-no-color", "-input=false", "-var", "queue_visibility_timeout=0", "-var", "queue_receive_wait=21",
		"-var", "record_retention_days=7", "-var", "max_receive_count=1")
	if err == nil {
		t.Error("values that lose or double messages are accepted")
	}
	for _, want := range []string{
		"every receive of two workers is a duplicate", "20 seconds at most", "keep records for 18 days", "Use 5 to 1000",
	} {
		if !strings.Contains(unwrapped(out), want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	// Each of the two values is fine alone. Together they double the effect of a dead letter that is redriven.
	out, err = m.try("plan", "-no-color", "-input=false", "-refresh=false", "-var", "queue_retention=1209600", "-var", "record_retention_days=20",
		"-target=aws_dynamodb_table.records")
	if err == nil || !strings.Contains(unwrapped(out), "lets it take effect again") {
		t.Errorf("records that end before the copies of their messages: %v\n%s", err, out)
	}
}

// unwrapped is the output of terraform without its frames and line breaks.
func unwrapped(out string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(out, "│", " ")), " ")
}

// TestModuleCarriesAWorker runs a worker on what the module creates, with moto in place of AWS. moto checks no permissions and
// runs no ECS tasks, so the service is not applied. It keeps no RedriveAllowPolicy either, so that is left out.
func TestModuleCarriesAWorker(t *testing.T) {
	m := initialised(t)
	endpoint := moto.Start(t)
	m.env = append(m.env, "AWS_ENDPOINT_URL="+endpoint, "AWS_ACCESS_KEY_ID=semel", "AWS_SECRET_ACCESS_KEY=semel",
		"AWS_EC2_METADATA_DISABLED=true")
	apply := []string{"apply", "-no-color", "-input=false", "-auto-approve"}
	for _, part := range []string{
		"aws_sqs_queue.main", "aws_dynamodb_table.records", "aws_iam_policy.worker", "aws_iam_policy.producer", "aws_iam_policy.operator",
		"aws_cloudwatch_metric_alarm.duplicate_effects", "aws_cloudwatch_metric_alarm.dead_letters", "aws_cloudwatch_metric_alarm.depth",
	} {
		apply = append(apply, "-target="+part)
	}
	m.run(apply...)
	var out struct {
		QueueURL  struct{ Value string } `json:"queue_url"`
		TableName struct{ Value string } `json:"table_name"`
	}
	if err := json.Unmarshal([]byte(m.run("output", "-json")), &out); err != nil {
		t.Fatal(err)
	}
	cfg := moto.Config(endpoint)
	cfg.Region, cfg.RetryMaxAttempts = "us-west-1", 0
	// The table is as semel would have created it: Create leaves it alone, and would refuse another.
	records := awsdynamodb.NewFromConfig(cfg)
	if err := dynamodb.Create(t.Context(), records, out.TableName.Value, dynamodb.CreateOptions{}); err != nil {
		t.Fatalf("the module's table is not what semel needs: %v", err)
	}
	store, err := dynamodb.Open(t.Context(), records, out.TableName.Value, dynamodb.Options{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := sqs.Open(t.Context(), awssqs.NewFromConfig(cfg), out.QueueURL.Value, sqs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !q.Features().Redrives || !q.Features().DeadLetters {
		t.Errorf("the queue has no dead letters: %+v", q.Features())
	}
	for _, body := range []string{`{"id":"a"}`, `{"id":"a"}`, `{"id":"b"}`, `{"id":"poison"}`} {
		if err := q.Send(t.Context(), semel.Message{Body: []byte(body)}); err != nil {
			t.Fatal(err)
		}
	}
	effects := map[string]int{}
	c, err := semel.New(semel.Config{
		Queue: q, Store: store, Key: key.FromJSON("/id"), Concurrency: 1, Limit: 4, Retention: 28 * 24 * time.Hour,
		Handler: semel.HandlerFunc(func(_ context.Context, a *semel.Attempt) error {
			if a.Key.Raw == "poison" {
				return semel.Permanent(errors.New("poison"))
			}
			effects[a.Key.Raw]++
			return nil
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	deadLetters, err := q.DeadLetters(t.Context(), 0)
	if err != nil || len(deadLetters) != 1 || effects["a"] != 1 || effects["b"] != 1 {
		t.Errorf("effects %v, dead letters %v, %v: want one effect each of a and b, and a dead letter", effects, deadLetters, err)
	}
}

// TestModuleAgreesWithTemplate compares, without terraform, the module with the environment template of a worker (visibility)
// and with what semel doctor expects of a table (protection, backups, time to live).
func TestModuleAgreesWithTemplate(t *testing.T) {
	for path, want := range map[string]string{
		"terraform/variables.tf": `(?s)variable "queue_visibility_timeout" \{[^}]*default\s+= (\d+)\n`,
		"env.template":           `(?m)^SQS_VISIBILITY_TIMEOUT=(\d+)$`,
	} {
		found := regexp.MustCompile(want).FindStringSubmatch(deployed(t, path))
		if len(found) != 2 || found[1]+"s" != semel.DefaultVisibility.String() {
			t.Errorf("%s: visibility %q, want %s", path, found, semel.DefaultVisibility)
		}
	}
	table := regexp.MustCompile(`(?s)resource "aws_dynamodb_table" "records" \{.*?\n\}`).FindString(deployed(t, "terraform/queue.tf"))
	for _, want := range []string{
		`deletion_protection_enabled = var\.table_protection`, `(?s)point_in_time_recovery \{\s+enabled = true`, `attribute_name = "ttl"`,
	} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("the table has no %s:\n%s", want, table)
		}
	}
	if !regexp.MustCompile(`(?s)variable "table_protection" \{[^}]*default\s+= true`).MatchString(deployed(t, "terraform/variables.tf")) {
		t.Error("the table is not protected by default")
	}
}

func deployed(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "deploy", "aws", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
