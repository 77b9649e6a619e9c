//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/semel-dev/semel/cmd/semel/internal/scaffold"
	"github.com/semel-dev/semel/internal/process"
	"github.com/semel-dev/semel/semeltest/server"
)

// invocation is a command line of the binary in a file of deploy, with its environment and what surrounds it.
type invocation struct {
	where string
	args  []string
	env   []string
	// stop is how long the orchestrator waits after SIGTERM, "" if the file does not say.
	stop string
	// ports are those that the file opens for it.
	ports []string
}

const exampleURL = "postgres://shop@db.example.org/shop?queue=orders"

// TestDeployCommands: the binary accepts every command line in deploy and in the files of semel init, with its environment and
// settings; the ports that a file opens are those that the command listens on, and it waits longer for a worker than its drain takes.
func TestDeployCommands(t *testing.T) {
	found := map[string]int{}
	for _, in := range deployed(t) {
		found[in.args[0]]++
		if problem := check(t, in); problem != "" {
			t.Errorf("%s: semel %s: %s", in.where, strings.Join(in.args, " "), problem)
		}
	}
	for command, least := range map[string]int{"work": 5, "serve": 2, "migrate": 3, "send": 1, "records": 1, "alerts": 1, "dashboards": 1, "config": 1} {
		if found[command] < least {
			t.Errorf("%d command lines of semel %s found, want %d: the test does not see them", found[command], command, least)
		}
	}
	// The test sees what is wrong.
	good := invocation{args: []string{"work", "--exec=true", "--listen=0.0.0.0:9464"}, env: []string{"SEMEL_OPT_QUEUE=" + exampleURL}, stop: "40s", ports: []string{"9464"}}
	for want, change := range map[string]func(*invocation){
		"unknown flag": func(in *invocation) { in.args = append(in.args, "--concurency=2") },
		"is no settin": func(in *invocation) { in.env = append(in.env, "SEMEL_OPT_GRACEE=1s") },
		"9465":         func(in *invocation) { in.ports = []string{"9465"} },
		"stop":         func(in *invocation) { in.stop = "25s" },
	} {
		bad := good
		bad.args, bad.env = slices.Clone(good.args), slices.Clone(good.env)
		change(&bad)
		if got := check(t, bad); !strings.Contains(got, want) {
			t.Errorf("%s: found %q", want, got)
		}
	}
	if got := check(t, good); got != "" {
		t.Error(got)
	}
}

// check returns what is wrong with an invocation, or "".
func check(t *testing.T, in invocation) string {
	t.Helper()
	if in.args[0] != "work" {
		if _, err := semelRun(t, in, append(slices.Clone(in.args), "--help")...); err != nil {
			return err.Error()
		}
		_, err := semelRun(t, in, "version") // it reads the environment
		if err != nil {
			return err.Error()
		}
		for i, arg := range in.args {
			if listen, ok := strings.CutPrefix(arg, "--listen="); ok && i > 0 {
				return comparePorts(in, listen)
			}
		}
		return ""
	}
	if _, err := semelRun(t, in, append([]string{"config", "validate"}, in.args[1:]...)...); err != nil {
		return err.Error()
	}
	out, err := semelRun(t, in, append([]string{"config", "print", "-o", "json"}, in.args[1:]...)...)
	if err != nil {
		return err.Error()
	}
	var settings struct{ Grace, Listen string }
	if err := json.Unmarshal([]byte(out), &settings); err != nil {
		return err.Error()
	}
	if in.stop != "" {
		stop, err := time.ParseDuration(in.stop)
		grace, err2 := time.ParseDuration(settings.Grace)
		if err = errors.Join(err, err2); err != nil {
			return err.Error()
		}
		if killGrace := 5 * time.Second; stop <= grace+killGrace {
			return fmt.Sprintf("time to stop: %v, and the drain takes up to %v", stop, grace+killGrace)
		}
	}
	return comparePorts(in, settings.Listen)
}

func comparePorts(in invocation, listen string) string {
	for _, port := range in.ports {
		if !strings.HasSuffix(listen, ":"+port) {
			return fmt.Sprintf("it listens on %q, and the file opens port %s", listen, port)
		}
	}
	return ""
}

// semelRun runs the binary in the environment of an invocation. The error has what it printed.
func semelRun(t *testing.T, in invocation, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(semelFolder(t), "semel"), args...)
	cmd.Dir, cmd.Env = t.TempDir(), append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, in.env...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, &errs)
	}
	return string(out), nil
}

// deployed collects the command lines of deploy and of the files that semel init writes.
func deployed(t *testing.T) (all []invocation) {
	t.Helper()
	made := t.TempDir()
	if _, err := scaffold.Write(scaffold.Options{Dir: made, Language: "shell", Queue: exampleURL, Store: exampleURL}); err != nil {
		t.Fatal(err)
	}
	files := []string{filepath.Join(made, "compose.yaml")}
	for _, pattern := range []string{"*/*.yaml", "systemd/*"} {
		more, err := filepath.Glob(filepath.Join("..", "..", "deploy", pattern))
		if err != nil || len(more) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		config := map[string]string{"/etc/semel/%i.yaml": filepath.Join(made, "semel.yaml")}
		before := len(all)
		if strings.HasSuffix(file, ".service") {
			all = append(all, ofUnit(string(text))...)
		} else {
			all = append(all, ofYAML(t, text, config)...)
		}
		for i := before; i < len(all); i++ {
			all[i].where = filepath.Base(file)
			for j, arg := range all[i].args {
				for path, local := range config {
					arg = strings.ReplaceAll(arg, path, local)
				}
				all[i].args[j] = arg
			}
			if file == files[0] { // its image has the settings
				all[i].env = append(all[i].env, "SEMEL_OPT_CONFIG="+config["/etc/semel/%i.yaml"])
			}
		}
	}
	return all
}

func ofUnit(text string) (out []invocation) {
	for _, m := range regexp.MustCompile(`(?m)^ExecStart(?:Pre)?=/usr/local/bin/semel (.*)$`).FindAllStringSubmatch(text, -1) {
		stop := regexp.MustCompile(`(?m)^TimeoutStopSec=(.*)$`).FindStringSubmatch(text)[1]
		out = append(out, invocation{args: strings.Fields(m[1]), stop: stop})
	}
	return out
}

// ofYAML finds the command lines of a compose file or of manifests. Settings in a ConfigMap become files, which config names.
func ofYAML(t *testing.T, text []byte, config map[string]string) (out []invocation) {
	t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^#.* run --rm worker (.*)$`).FindAllSubmatch(text, -1) {
		out = append(out, invocation{args: strings.Fields(string(m[1]))})
	}
	docs := yaml.NewDecoder(strings.NewReader(string(text)))
	for {
		var doc map[string]any
		if err := docs.Decode(&doc); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		if settings := at(doc, "data", "semel.yaml"); settings != nil {
			local := filepath.Join(t.TempDir(), "semel.yaml")
			if err := os.WriteFile(local, fmt.Append(nil, settings), 0o600); err != nil {
				t.Fatal(err)
			}
			config["/etc/semel/semel.yaml"] = local
		}
		services, _ := at(doc, "services").(map[string]any)
		for _, s := range services {
			out = append(out, ofService(s)...)
		}
		pod := at(doc, "spec", "template", "spec")
		containers, _ := at(pod, "containers").([]any)
		for _, c := range containers {
			in := invocation{args: words(at(c, "args")), env: variables(at(c, "env"))}
			if grace := at(pod, "terminationGracePeriodSeconds"); grace != nil {
				in.stop = fmt.Sprint(grace, "s")
			}
			ports, _ := at(c, "ports").([]any)
			for _, p := range ports {
				in.ports = append(in.ports, fmt.Sprint(at(p, "containerPort")))
			}
			if in.args[0] == "semel" {
				in.args = in.args[1:]
			}
			out = append(out, in)
		}
	}
}

// ofService finds the command lines of a service of a compose file.
func ofService(s any) (out []invocation) {
	command := words(at(s, "command"))
	if at(s, "build") == nil || len(command) == 0 {
		return nil
	}
	if at(s, "entrypoint") != nil { // a shell
		for _, m := range regexp.MustCompile(`\bsemel ([a-z]+)`).FindAllStringSubmatch(command[0], -1) {
			out = append(out, invocation{args: []string{m[1]}})
		}
		return out
	}
	in := invocation{args: command, env: variables(at(s, "environment"))}
	if stop := at(s, "stop_grace_period"); stop != nil {
		in.stop = fmt.Sprint(stop)
	}
	for _, open := range slices.Concat(words(at(s, "ports")), words(at(s, "healthcheck", "test"))) {
		if m := regexp.MustCompile(`:(\d+)(/|$)`).FindStringSubmatch(open); m != nil {
			in.ports = append(in.ports, m[1])
		}
	}
	return append(out, in)
}

// at is the value at a path of maps, nil if there is none.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func words(v any) (out []string) {
	list, _ := v.([]any)
	for _, w := range list {
		out = append(out, fmt.Sprint(w))
	}
	return out
}

// variables are those of a service (a map) or a container (a list). A secret is a URL here.
func variables(v any) (out []string) {
	named, _ := v.(map[string]any)
	for name, value := range named {
		out = append(out, fmt.Sprintf("%s=%v", name, value))
	}
	list, _ := v.([]any)
	for _, e := range list {
		value := at(e, "value")
		if value == nil {
			value = exampleURL
		}
		out = append(out, fmt.Sprintf("%v=%v", at(e, "name"), value))
	}
	return out
}

// TestDeployPaths: every path of a probe, a health check or a scaler in deploy exists on the server that it is for.
func TestDeployPaths(t *testing.T) {
	dir, folder := t.TempDir(), semelFolder(t)
	queue := "sqlite:" + filepath.Join(dir, "q.db") + "?queue=orders"
	if _, err := semelRun(t, invocation{}, "queue", "create", "--queue", queue); err != nil {
		t.Fatal(err)
	}
	servers := map[string]string{}
	for command, more := range map[string][]string{"work": {"--exec", "true"}, "serve": nil} {
		port, err := server.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		servers[command] = fmt.Sprintf("127.0.0.1:%d", port)
		cmd := exec.Command(filepath.Join(folder, "semel"), append([]string{command, "--queue", queue, "--listen", servers[command]}, more...)...)
		process.StartTest(t, cmd)
	}
	files, err := filepath.Glob("../../deploy/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`path: (/\w+), port: (\w+)|:(9464|8080)(/[\w/]+)`).FindAllStringSubmatch(string(text), -1) {
			command := "work"
			if m[2] == "http" || m[3] == "8080" {
				command = "serve"
			}
			url := "http://" + servers[command] + m[1] + m[4]
			if asked[url] {
				continue
			}
			asked[url] = true
			if status := eventualStatus(t, url); status != http.StatusOK {
				t.Errorf("%s: semel %s responds %d to %s", file, command, status, m[0])
			}
		}
	}
	if len(asked) < 5 {
		t.Errorf("only these were found: %v", asked)
	}
}

// eventualStatus is the status of a response. It waits for the server to listen.
func eventualStatus(t *testing.T, url string) int {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
