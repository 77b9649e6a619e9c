package aws_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/semel-dev/semel"
)

// TestModuleAgreesWithTemplate asserts, without terraform, what the module has in common with the environment of a worker and
// with what the doctor asks of a table: the visibility, and a table that is not lost by a slip.
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
		t.Error("the table is not protected unless somebody says so")
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
