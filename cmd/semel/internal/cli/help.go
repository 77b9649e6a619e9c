package cli

import (
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/semel-dev/semel/cmd/semel/internal/config"
)

// glossary explains the words that commands print.
const glossary = "https://github.com/semel-dev/semel/blob/main/docs/glossary.md"

// helpWidth is the longest line of a help text, in columns.
const helpWidth = 100

// setUsage groups and wraps the flags of every command.
func setUsage(root *cobra.Command) {
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	root.SetUsageTemplate(strings.NewReplacer(
		"Flags:\n{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagUsages .LocalFlags}}",
		"Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagUsages .InheritedFlags}}",
	).Replace(root.UsageTemplate()) + "{{if not .HasParent}}\nWords: " + glossary + "\n{{end}}")
}

// flagUsages lists the flags of a command, the settings of the worker under the titles of their groups.
func flagUsages(fs *pflag.FlagSet) string {
	const rest = "Flags"
	groups := map[string]*pflag.FlagSet{}
	fs.VisitAll(func(f *pflag.Flag) {
		title := rest
		if g := f.Annotations[config.GroupAnnotation]; len(g) == 1 {
			title = g[0]
		}
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet(title, pflag.ContinueOnError)
		}
		shown := *f
		if shown.DefValue == "0s" { // the text says what is done without it
			shown.DefValue = ""
		}
		groups[title].AddFlag(&shown)
	})
	var out []string
	for _, title := range append(config.Groups(), rest) {
		if g := groups[title]; g != nil {
			out = append(out, title+":\n"+strings.TrimRight(g.FlagUsagesWrapped(helpWidth), "\n"))
		}
	}
	return strings.Join(out, "\n\n")
}

// wrapHelp wraps the descriptions of a command and of those below it.
func wrapHelp(cmd *cobra.Command) {
	cmd.Long = wrap(cmd.Long, helpWidth)
	for _, sub := range cmd.Commands() {
		wrapHelp(sub)
	}
}

// wrap refills the paragraphs of text that have a line of more than width columns. An indented line is a paragraph of its own:
// what does not fit continues under its second column, which begins behind two spaces.
func wrap(text string, width int) string {
	var out, paragraph []string
	flush := func() {
		if longest(paragraph) > width {
			paragraph = fill(strings.Join(paragraph, " "), width)
		}
		out = append(out, paragraph...)
		paragraph = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || strings.HasPrefix(line, " ") {
			flush()
			paragraph = []string{line}
			flush()
			continue
		}
		paragraph = append(paragraph, line)
	}
	flush()
	return strings.Join(out, "\n")
}

func longest(lines []string) (n int) {
	for _, l := range lines {
		n = max(n, utf8.RuneCountInString(l))
	}
	return n
}

func fill(line string, width int) []string {
	text := strings.TrimLeft(line, " ")
	first := len(line) - len(text)
	hang := first
	if name, rest, ok := strings.Cut(text, "  "); ok {
		hang += utf8.RuneCountInString(name) + 2 + len(rest) - len(strings.TrimLeft(rest, " "))
	}
	head, body := string([]rune(line)[:hang]), string([]rune(line)[hang:])
	out := []string{head}
	used := hang
	for i, word := range strings.Fields(body) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+n > width:
			out = append(out, strings.Repeat(" ", hang))
			used = hang
		default:
			out[len(out)-1] += " "
			used++
		}
		out[len(out)-1] += word
		used += n
	}
	return out
}
