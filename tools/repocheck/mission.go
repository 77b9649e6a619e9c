package main

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// missionPage maps every row of the mission to what shows it. Its tests and files have to exist. So do the tests that
// verificationPage names.
const (
	missionPage      = "docs/mission.md"
	verificationPage = "docs/verification.md"
)

// missionRows is how many rows the mission has, by the first part of their ids.
var missionRows = map[string]int{"S0": 30, "S1": 45, "S2": 20, "S3": 61, "S4": 33}

var (
	missionRow  = regexp.MustCompile(`(?m)^\| (S\d)-(\d\d) \|(.*)\|[ \t]*$`)
	namedTest   = regexp.MustCompile(`^(?:Test|Example|Fuzz|Benchmark)[A-Z0-9_]\w*$`)
	namedFile   = regexp.MustCompile(`^((?:[\w.-]+/)*[\w-][\w.-]*\.(?:go|md|txtar|html|svg))(?::(\w+))?$`)
	namedFolder = regexp.MustCompile(`^(?:[\w.-]+/)+$`)
	testFunc    = regexp.MustCompile(`(?m)^func ((?:Test|Example|Fuzz|Benchmark)\w*)\(`)
)

// checkMission reports rows that are missing or come twice, states that are none, rows that claim to be shown and name
// nothing, and names of tests, files and folders that do not exist.
func checkMission(root string, text []byte) (problems []string, err error) {
	bad := func(format string, args ...any) {
		problems = append(problems, missionPage+": "+fmt.Sprintf(format, args...))
	}
	tests, err := testNames(root)
	if err != nil {
		return nil, err
	}
	seen := map[string]int{}
	for _, m := range missionRow.FindAllSubmatch(text, -1) {
		id := string(m[1]) + "-" + string(m[2])
		seen[id]++
		cells := strings.Split(string(m[3]), " | ")
		state := strings.TrimSpace(cells[len(cells)-1])
		if len(cells) != 3 {
			bad("row %s has %d cells behind its id, wanted what, where, state", id, len(cells))
			continue
		}
		named := codeSpan.FindAllString(cells[1], -1)
		switch {
		case state != "shown" && state != "partly" && state != "planned":
			bad("row %s has the state %q (known: shown, partly, planned)", id, state)
		case state != "planned" && len(named) == 0:
			bad("row %s is %s, and names nothing that shows it", id, state)
		}
	}
	for _, part := range slices.Sorted(maps.Keys(missionRows)) {
		for n := 1; n <= missionRows[part]; n++ {
			id := fmt.Sprintf("%s-%02d", part, n)
			if seen[id] != 1 {
				bad("row %s stands there %d times", id, seen[id])
			}
			delete(seen, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(seen)) {
		bad("there is no row %s in the mission", id)
	}
	for _, span := range codeSpan.FindAllString(string(text), -1) {
		if why := checkNamed(root, strings.Trim(span, "`"), tests); why != "" {
			bad("%s: %s", span, why)
		}
	}
	return problems, nil
}

// checkVerification reports names of tests that do not exist.
func checkVerification(root string, text []byte) (problems []string, err error) {
	tests, err := testNames(root)
	for _, span := range codeSpan.FindAllString(string(text), -1) {
		if name := strings.Trim(span, "`"); namedTest.MatchString(name) && len(tests[name]) == 0 {
			problems = append(problems, fmt.Sprintf("%s: %s: there is no such test", verificationPage, span))
		}
	}
	return problems, err
}

// checkNamed says what is wrong with a name; "" = nothing, or it is no name of a test, file or folder.
func checkNamed(root, name string, tests map[string][]string) string {
	if namedTest.MatchString(name) {
		if len(tests[name]) == 0 {
			return "there is no such test"
		}
		return ""
	}
	path, test := name, ""
	switch m := namedFile.FindStringSubmatch(name); {
	case m != nil:
		path, test = m[1], m[2]
	case !namedFolder.MatchString(name):
		return ""
	}
	if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path))); err != nil {
		return "it is not there"
	}
	if test != "" && !slices.Contains(tests[test], path) {
		return "the file has no such test"
	}
	return ""
}

// testNames are the files of each test, example, fuzz target and benchmark, relative to the root.
func testNames(root string) (map[string][]string, error) {
	names := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read %s: %w", path, err)
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			names[string(m[1])] = append(names[string(m[1])], filepath.ToSlash(rel))
		}
		return nil
	})
	return names, err
}
