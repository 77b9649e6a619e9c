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

// module is a copy of deploy/aws/terraform where terraform may write, with the provider of AWS beside it.
type module struct {
	t   *testing.T
	dir string
	env []string
}

// checked is the digest of deploy/aws/terraform when terraform last accepted it.
const checked = "f5389a92640d1b45"

// initialised copies the module and initialises it with a provider that is on this machine: a test asks no registry. Terraform
// takes a minute, so it looks again only when the module changed, and in nightly runs.
func initialised(t *testing.T) *module {
	t.Helper()
	t.Parallel() // terraform waits more than it works
	if sum := digest(t); sum != checked {
		t.Cleanup(func() {
			if !t.Failed() && !t.Skipped() {
				t.Errorf("terraform accepts the changed module: set the constant checked to %q", sum)
			}
		})
	} else if !semeltest.Nightly() {
		t.Skip("terraform has accepted this module before; make nightly asks it again")
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

// providers is a directory with the provider: one that is named, or one of the places where mirrors are put.
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

// TestS3_44TerraformModule: the module is valid, takes the variables of the demonstration, and refuses values that would lose
// or double messages with a sentence about them.
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
	// Every value that is refused is told of at once.
	out, err := m.try("plan", "-no-color", "-input=false", "-var", "queue_visibility_timeout=0", "-var", "queue_receive_wait=21",
		"-var", "record_retention_days=7", "-var", "max_receive_count=1")
	if err == nil {
		t.Error("values that lose or double messages are taken")
	}
	plain := strings.Join(strings.Fields(strings.ReplaceAll(out, "│", " ")), " ")
	for _, want := range []string{
		"every receive of two workers is a duplicate", "20 seconds at most", "keep records for 18 days", "Use 5 to 1000",
	} {
		if !strings.Contains(plain, want) {
			t.Errorf("nothing says %q:\n%s", want, out)
		}
	}
	// Each of the two is fine, and both together double what a person sends again from the dead letters.
	out, err = m.try("plan", "-no-color", "-input=false", "-refresh=false", "-var", "queue_retention=1209600", "-var", "record_retention_days=20",
		"-target=aws_dynamodb_table.records")
	if err == nil || !strings.Contains(out, "lets it take effect again") {
		t.Errorf("records that end before the copies of their messages: %v\n%s", err, out)
	}
}

// TestModuleCarriesAWorker: what the module makes is what a worker needs. moto stands for AWS. It knows neither rights nor the
// lives of ECS's tasks, so the service is not applied; nor does it keep a queue's RedriveAllowPolicy, so that is left out.
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
	// The table is as semel would have made it: Create leaves it alone, and refuses another.
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
