// Command repocheck checks what no compiler sees: that the core's go.mod has no require line, that the links inside of the
// repository lead somewhere, that the tests and files that docs/mission.md names exist, and that no text has a word of
// words.go, and that the README's table of queues and stores is that of docs/pairs.jsonl (-write renews it). It warns of files
// that have grown long, which is no failure.
//
// It takes the root of the repository, prints what is wrong on standard output, and exits 1 when anything is.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const maxLines = 400

// texts are the files that people read.
var texts = []string{".go", ".md", ".txtar", ".tmpl", ".js", ".sql", ".lua", ".tf", ".yaml"}

func main() {
	write := flag.Bool("write", false, "renew the README's table of queues and stores")
	flag.Parse()
	root := "."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	problems, warnings, err := check(root)
	if err == nil {
		var more []string
		more, err = checkPairs(root, *write)
		problems = append(problems, more...)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "repocheck:", err)
		os.Exit(1)
	}
	for _, w := range warnings {
		fmt.Println("warning:", w)
	}
	for _, p := range problems {
		fmt.Println("error:", p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
	fmt.Printf("repocheck: ok, %d warnings\n", len(warnings))
}

func check(root string) (problems, warnings []string, err error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, nil, fmt.Errorf("read the core's go.mod: %w", err)
	}
	problems = checkCore(mod)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		ext := filepath.Ext(path)
		if !slices.Contains(texts, ext) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		problems = append(problems, checkWords(path, text)...)
		if ext == ".md" {
			problems = append(problems, checkLinks(path, text)...)
		} else if n := bytes.Count(text, []byte("\n")); n > maxLines && ext == ".go" {
			warnings = append(warnings, fmt.Sprintf("%s has %d lines, more than %d: does it have more than one role?",
				path, n, maxLines))
		}
		return nil
	})
	if err != nil {
		return problems, warnings, err
	}
	for _, page := range []struct {
		name  string
		check func(root string, text []byte) ([]string, error)
	}{{missionPage, checkMission}, {verificationPage, checkVerification}} {
		if text, rerr := os.ReadFile(filepath.Join(root, page.name)); rerr == nil {
			more, cerr := page.check(root, text)
			problems, err = append(problems, more...), errors.Join(err, cerr)
		}
	}
	return problems, warnings, err
}

var requireLine = regexp.MustCompile(`(?m)^\s*require\b`)

func checkCore(mod []byte) []string {
	if requireLine.Match(mod) {
		return []string{"go.mod: the core has a require line; it may use the standard library only: move what needs a " +
			"library into a module of its own (adapters/, contrib/, tests/)"}
	}
	return nil
}

var (
	inlineLink = regexp.MustCompile(`\]\(([^()\s]+)(?:\s+"[^"]*")?\)`)
	fence      = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	codeSpan   = regexp.MustCompile("`[^`\n]*`")
	heading    = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*#*\s*$`)
	notAnchor  = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)
)

// checkLinks reports links to files and headings that are not there. Addresses on the web are not looked at.
func checkLinks(path string, text []byte) (problems []string) {
	prose := codeSpan.ReplaceAll(fence.ReplaceAll(text, nil), nil)
	for _, m := range inlineLink.FindAllSubmatch(prose, -1) {
		u, err := url.Parse(string(m[1]))
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: link %s: %v", path, m[1], err))
			continue
		}
		if u.Scheme != "" || u.Host != "" {
			continue
		}
		target, content := path, text
		if u.Path != "" {
			target = filepath.Join(filepath.Dir(path), filepath.FromSlash(u.Path))
			if _, err := os.Stat(target); err != nil {
				problems = append(problems, fmt.Sprintf("%s: link %s leads nowhere", path, m[1]))
				continue
			}
			if filepath.Ext(target) != ".md" {
				continue
			}
			if content, err = os.ReadFile(target); err != nil {
				problems = append(problems, fmt.Sprintf("%s: link %s: %v", path, m[1], err))
				continue
			}
		}
		if u.Fragment != "" && !slices.Contains(anchors(content), u.Fragment) {
			problems = append(problems, fmt.Sprintf("%s: link %s: %s has no such heading", path, m[1], target))
		}
	}
	return problems
}

// anchors are the fragments of the headings of a Markdown text, as code hosts make them.
func anchors(text []byte) []string {
	var names []string
	seen := map[string]int{}
	for _, m := range heading.FindAllSubmatch(fence.ReplaceAll(text, nil), -1) {
		name := strings.ToLower(string(inlineLink.ReplaceAll(m[1], []byte("]"))))
		name = strings.ReplaceAll(notAnchor.ReplaceAllString(name, ""), " ", "-")
		if n := seen[name]; n > 0 {
			names = append(names, fmt.Sprintf("%s-%d", name, n))
		} else {
			names = append(names, name)
		}
		seen[name]++
	}
	return names
}
