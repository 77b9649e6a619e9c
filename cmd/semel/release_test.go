package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestReleaseFiles: what .goreleaser.yaml and the workflows name is there: the variable of the version, the stage of the image,
// the hook, the files of the archive, and the commands that CI runs.
func TestReleaseFiles(t *testing.T) {
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	var release struct {
		Before struct{ Hooks []string }
		Builds []struct {
			Dir     string
			Ldflags []string
		}
		Archives []struct{ Files []string }
		Dockers  []struct {
			Dockerfile string
			Flags      []string `yaml:"build_flag_templates"`
		}
	}
	if err := yaml.Unmarshal([]byte(read(".goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`-X github.com/semel-dev/semel/(\S+)\.(\w+)=v`).FindStringSubmatch(release.Builds[0].Ldflags[0])
	if variable == nil || !strings.Contains(read(variable[1]+"/version.go"), "var "+variable[2]+" = ") {
		t.Errorf("ldflags set no variable of the binary: %q", release.Builds[0].Ldflags)
	}
	for _, hook := range release.Before.Hooks {
		if m := regexp.MustCompile(`^go run \./(\S+)`).FindStringSubmatch(hook); m == nil || read(m[1]+"/main.go") == "" {
			t.Errorf("hook %q runs nothing", hook)
		}
	}
	for _, d := range release.Dockers {
		stage := strings.TrimPrefix(d.Flags[0], "--target=")
		if !strings.Contains(read(d.Dockerfile), " AS "+stage+"\n") {
			t.Errorf("%s has no stage %s", d.Dockerfile, stage)
		}
	}
	for _, pattern := range release.Archives[0].Files {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if !strings.HasPrefix(pattern, "release/") && (err != nil || len(found) == 0) { // the hook makes release
			t.Errorf("the archive has no %s: %v", pattern, err)
		}
	}
	if len(release.Builds) != 1 || len(release.Dockers) != 2 || len(release.Archives) != 1 {
		t.Errorf("%d builds, %d images, %d archives", len(release.Builds), len(release.Dockers), len(release.Archives))
	}
	ci := read(".github/workflows/ci.yml")
	if !strings.Contains(ci, "run: .ci/run\n") || !strings.Contains(ci, "run: make nightly\n") || !strings.Contains(read("Makefile"), "\nnightly:") {
		t.Error("ci.yml must run .ci/run, and make nightly")
	}
}
