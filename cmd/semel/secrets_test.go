package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/semel-dev/semel/semeltest"
)

// secret is a password or a token in all the settings of these tests.
const secret = "s3cr3tPW"

// places are where secrets stand in URLs, and in what is taken for one.
func secretPlaces() []string {
	const nobody = "127.0.0.1:1"
	return []string{
		"host=127.0.0.1 password=" + secret + " user=postgres dbname=shop",
		"host=127.0.0.1 user=postgres password='" + secret + "' port=1",
		"Server=tcp:127.0.0.1,1;Password=" + secret,
		"postgres://u:" + secret + "@" + nobody + "/shop?queue=orders&connect_timeout=1",
		"postgres://" + nobody + "/shop?queue=orders&user=u&password=" + secret,
		"postgres://u:a/" + secret + "@" + nobody + "/shop",
		"mysql://u:" + secret + "@" + nobody + "/shop?password=" + secret,
		"u:" + secret + "@tcp(" + nobody + ")/shop",
		"sqs://u:" + secret + "@orders", "sqs://orders?token=" + secret, "sqs://orders?endpoint=http://u:" + secret + "@" + nobody,
		"https://u:" + secret + "@" + nobody + "/123456789012/orders", "sqlite://u:" + secret + "@h/db?password=" + secret,
	}
}

// TestNoSecretIsPrinted gives every command passwords and tokens in its settings and arguments, and looks for them in all
// that it prints. Nightly it gives each of them each place in each form; otherwise each form of a command gets one place.
func TestNoSecretIsPrinted(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of commands")
	}
	t.Chdir(t.TempDir())
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": secret, "AWS_REGION": "eu-west-1", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_MAX_ATTEMPTS": "1", "AWS_ENDPOINT_URL": "http://u:" + secret + "@127.0.0.1:1",
		"AWS_LAMBDA_RUNTIME_API": "127.0.0.1:1", "AWS_LAMBDA_FUNCTION_NAME": "charge",
	} {
		t.Setenv(name, value)
	}
	settings := map[string][]string{
		"audit": {"--effects", "none.jsonl"}, "work": {"--exec", "true", "--until-empty"}, "send": {"--n", "1"}, "bench": {"--for", "1ms"},
		"records get": {"k"}, "records explain": {"k"}, "records release": {"k", "--yes"}, "records resolve": {"k", "--as", "failed", "--yes"},
		"dlq show": {"x"}, "dlq edit": {"x"}, "queue purge": {"--yes"}, "config print": {"--exec", "true"}, "config validate": {"--exec", "true"},
		"relay": {"--until-empty"}, "serve": {"--listen", "127.0.0.1:0"}, "extension": {"--listen", "127.0.0.1:0"}, "sqs": {"--listen", "127.0.0.1:0"}, "lab attack": {"--exec", "false"},
		"lab run": {"--list"}, "demo": {"--report", ""}, "lab up": {"--dir", "lab"}, "lab down": {"--dir", "lab"},
	}
	places := secretPlaces()
	for p, place := range places {
		t.Run("", func(t *testing.T) {
			for n, name := range allCommands() {
				command := append(strings.Fields(name), settings[name]...)
				for form, more := range [][]string{
					{"--queue", place}, {"--store", place}, {"--queue", place, "-o", "json", "--log-format", "json"}, {place}, {"--nonsense=" + place},
					{"--queue", "sqlite:q.db", "--store", place}, {"--effects", place}, {"--effects", place, "--query", "SELECT 1"}, {"--endpoint", place},
				} {
					if passedOver(name, more) || !semeltest.Nightly() && (p+n+form)%len(places) != 0 {
						continue
					}
					s := printed(slices.Concat(command, more)...)
					if i := strings.Index(s.out+s.errs, secret); i >= 0 {
						t.Errorf("semel %s %s prints %q", name, more, (s.out + s.errs)[max(0, i-80):i+len(secret)])
					}
				}
			}
		})
	}
	t.Setenv("SEMEL_OPT_QUEUE", "host=h password="+secret)
	t.Setenv("QUEUE_URL", "https://u:"+secret+"@h/1/orders?code="+secret)
	for _, name := range []string{"env", "config print", "work"} {
		if s := printed(strings.Fields(name)...); strings.Contains(s.out+s.errs, secret) {
			t.Errorf("semel %s with variables: %s%s", name, s.out, s.errs)
		}
	}
}

// passedOver are those that have nothing to refuse and would do their work, and arguments that are no settings.
func passedOver(name string, more []string) bool {
	place := more[len(more)-1]
	file := strings.HasPrefix(place, "mysql:") || strings.HasPrefix(place, "u:") // to --effects
	if file && strings.HasPrefix(place, "u:") && len(more) == 1 {
		return true // user:password@… as an argument may be a key
	}
	switch name {
	case "lab attack":
		return file && more[0] == "--effects"
	case "sqs fault":
		return !strings.HasPrefix(more[0], "--")
	case "demo", "verify", "lab run", "lab up", "bench", "serve", "sqs", "relay":
		return more[0] == "--queue" && strings.HasPrefix(more[1], "sqlite:") && len(more) == 2 || name == "lab up" && !strings.HasPrefix(more[0], "--")
	}
	return false
}

// TestNoSecretIsStored: what an endpoint's URL has of secrets reaches neither the log, nor reasons, nor events.
func TestNoSecretIsStored(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // takes requests, and breaks the connection
		for ctx.Err() == nil {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	defer func() { _ = l.Close() }()
	for _, endpoint := range []string{
		"http://svc:" + secret + "@" + l.Addr().String() + "/x?token=" + secret, "http://" + secret + "@" + l.Addr().String() + "/x?code=" + secret,
		"http://" + l.Addr().String() + "/x?anything=" + secret,
	} {
		queue := "sqlite:s.db?queue=orders"
		all := printed("send", "--queue", queue, "--n", "1")
		for _, args := range [][]string{
			{"work", "--queue", queue, "--http", endpoint, "--max-attempts", "1", "--until-empty", "--events", "events.jsonl", "--grace", "1s"},
			{"dlq", "ls", "--queue", queue, "-o", "json"}, {"records", "ls", "--store", queue, "-o", "json"}, {"config", "print", "--http", endpoint},
			{"env", "--http", endpoint}, {"doctor", "--queue", queue, "--http", endpoint},
			{"config", "print", "--takeover", "probe", "--probe-http", endpoint, "--exec", "true"},
			{"lab", "attack", "--http", strings.Replace(endpoint, l.Addr().String(), "127.0.0.1:1", 1)},
			{"config", "validate", "--http", strings.Replace(endpoint, "http", "ftp", 1)},
		} {
			s := printed(args...)
			all.out, all.errs = all.out+s.out, all.errs+s.errs
			if i := strings.Index(s.out+s.errs, secret); i >= 0 {
				t.Errorf("%s prints %q", args[:2], (s.out + s.errs)[max(0, i-120):i+len(secret)])
			}
			if args[0] == "dlq" && !strings.Contains(s.out, `"reason":"Post \"http://127`) {
				t.Errorf("no reason in %s", s.out)
			}
		}
		files, err := filepath.Glob("*")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil || strings.Contains(string(b), secret) {
				t.Errorf("%s has it: %v", f, err)
			}
		}
	}
}
