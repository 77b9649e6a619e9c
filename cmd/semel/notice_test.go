package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestNoticeNamesEveryModule asserts that the file NOTICE names every module that the binary carries on this system, under the
// licence that the module's own file says, and has the module's own NOTICE in it word by word.
func TestNoticeNamesEveryModule(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "NOTICE"))
	if err != nil {
		t.Fatal(err)
	}
	named := noticeEntries(string(text))
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(strings.ReplaceAll(string(out), "\n", " "))
	if len(linked) < 20 {
		t.Fatalf("go list names only %q", linked)
	}
	dirs := map[string]string{}
	for i := 0; i < len(linked); i += 2 {
		dirs[linked[i]] = linked[i+1]
	}
	for path, dir := range dirs {
		if problem := checkNotice(path, dir, named[path], string(text)); problem != "" {
			t.Errorf("%s: %s", path, problem)
		}
	}
	sums, err := os.ReadFile("go.sum") // has the modules of other systems, too
	if err != nil {
		t.Fatal(err)
	}
	for path := range named {
		if dirs[path] == "" && !strings.Contains(string(sums), path+" v") {
			t.Errorf("NOTICE names %s, which the binary does not carry", path)
		}
	}
}

// noticeEntries maps the modules of a NOTICE ("- PATH") to the licences that they stand below ("## MIT AND Apache-2.0").
func noticeEntries(text string) map[string]string {
	named, licence := map[string]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if head, ok := strings.CutPrefix(line, "## "); ok {
			licence = head
		} else if path, ok := strings.CutPrefix(line, "- "); ok && !strings.Contains(path, " ") {
			named[path] = licence
		}
	}
	return named
}

// checkNotice compares what NOTICE says of a module with the module's files.
func checkNotice(path, dir, named, text string) string {
	licences, err := licencesOf(dir)
	switch {
	case err != nil:
		return err.Error()
	case named == "":
		return fmt.Sprintf("the file NOTICE does not name it: add %q below %q", "- "+path, "## "+licences)
	case named != licences:
		return fmt.Sprintf("it stands below %q in the file NOTICE, and its own file says %q", named, licences)
	}
	own, _ := filepath.Glob(filepath.Join(dir, "NOTICE*"))
	for _, file := range own {
		b, err := os.ReadFile(file)
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(text, "### "+path+"\n\n"+strings.TrimSpace(string(b))+"\n") {
			return fmt.Sprintf("%s is not in the file NOTICE: add it below %q", file, "### "+path)
		}
	}
	return ""
}

// licencesOf recognises the licences that are in a module's own file.
func licencesOf(dir string) (string, error) {
	var found []string
	for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md"} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		text := strings.Join(strings.Fields(string(b)), " ")
		for _, l := range []struct{ name, says, unless string }{
			{"MIT", `Permission is hereby granted, free of charge`, ``},
			{"BSD-3-Clause", `Redistribution and use in source and binary forms.*may be used to endorse`, ``},
			{"BSD-2-Clause", `Redistribution and use in source and binary forms`, `may be used to endorse`},
			{"Apache-2.0", `Apache License`, ``},
			{"MPL-2.0", `Mozilla Public License Version 2\.0`, ``},
		} {
			if regexp.MustCompile(l.says).MatchString(text) && (l.unless == "" || !strings.Contains(text, l.unless)) && !slices.Contains(found, l.name) {
				found = append(found, l.name)
			}
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("no licence is recognised in %s: look at it, and teach this test its words", dir)
	}
	return strings.Join(found, " AND "), nil
}
