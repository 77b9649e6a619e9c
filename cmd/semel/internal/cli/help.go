package cli

import (
	"fmt"
	"io"
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

// usage writes how a command is used, with its flags in groups. It is no template of cobra's: package text/template makes the
// linker keep every exported method (docs/adr/0025).
func usage(c *cobra.Command) error {
	var b strings.Builder
	part := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n\n%s:\n%s", title, text)
		}
	}
	b.WriteString("Usage:")
	if c.Runnable() {
		b.WriteString("\n  " + c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		b.WriteString("\n  " + c.CommandPath() + " [command]")
	}
	if len(c.Aliases) > 0 {
		part("Aliases", "  "+c.NameAndAliases())
	}
	part("Examples", c.Example)
	var commands []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() || sub.Name() == "help" {
			commands = append(commands, fmt.Sprintf("  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short))
		}
	}
	part("Available Commands", strings.Join(commands, "\n"))
	if c.HasAvailableLocalFlags() {
		b.WriteString("\n\n" + flagUsages(c.LocalFlags()))
	}
	if c.HasAvailableInheritedFlags() {
		b.WriteString("\n\nGlobal " + flagUsages(c.InheritedFlags()))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n\nUse \"%s [command] --help\" for more information about a command.", c.CommandPath())
	}
	b.WriteString("\n")
	if !c.HasParent() {
		b.WriteString("\nWords: " + glossary + "\n")
	}
	_, err := io.WriteString(c.OutOrStderr(), b.String())
	return err
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
