// Package deploy lets Kubernetes' types and Prometheus itself read the files in deploy.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/dns" // dns_sd_configs
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// TestManifests: the manifests decode into the types of Kubernetes, and no field is unknown. ScaledObject is KEDA's.
func TestManifests(t *testing.T) {
	kinds := map[string]func() any{
		"ConfigMap": func() any { return new(corev1.ConfigMap) }, "Service": func() any { return new(corev1.Service) },
		"Job": func() any { return new(batchv1.Job) }, "Deployment": func() any { return new(appsv1.Deployment) },
		"PodDisruptionBudget": func() any { return new(policyv1.PodDisruptionBudget) }, "ScaledObject": nil,
	}
	files, err := filepath.Glob("../../deploy/kubernetes/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range append(files, "../../deploy/aws/keda.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		docs := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
		for _, doc := range split(t, docs) {
			var head struct{ Kind string }
			if err := yaml.Unmarshal(doc, &head); err != nil {
				t.Fatal(err)
			}
			made, known := kinds[head.Kind]
			if !known {
				t.Errorf("%s: unknown kind %q", file, head.Kind)
			} else if made != nil {
				if err := yaml.UnmarshalStrict(doc, made()); err != nil {
					t.Errorf("%s: %s: %v", file, head.Kind, err)
				}
				bad := bytes.Replace(doc, []byte("metadata:"), []byte("metadatas: {}\nmetadata:"), 1)
				if yaml.UnmarshalStrict(bad, made()) == nil {
					t.Errorf("%s: an unknown field of a %s is not found", file, head.Kind)
				}
			}
		}
	}
}

func split(t *testing.T, docs io.ReadCloser) (out [][]byte) {
	t.Helper()
	for {
		buf := make([]byte, 1<<20)
		n, err := docs.Read(buf)
		if errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, buf[:n])
	}
}

// TestPrometheusConfig: Prometheus loads the configuration of the compose file. tests/alerts has the rules.
func TestPrometheusConfig(t *testing.T) {
	text, err := os.ReadFile("../../deploy/compose/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := config.Load(string(text), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if len(loaded.ScrapeConfigs) != 2 || len(loaded.RuleFiles) != 1 {
		t.Errorf("%d jobs, rules in %q", len(loaded.ScrapeConfigs), loaded.RuleFiles)
	}
	if _, err := config.Load(strings.Replace(string(text), "rule_files", "rulefiles", 1), slog.New(slog.DiscardHandler)); err == nil {
		t.Error("an unknown field is not found")
	}
}
