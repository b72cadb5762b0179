package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cleavedb/cleave/internal/config"
)

var update = flag.Bool("update", false, "write the generated pages under docs/ anew")

func tree() *cobra.Command {
	a := &app{process: &process{}}
	return a.root()
}

// walk visits every command that people see, parents first.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			walk(c, visit)
		}
	}
}

// builtin are cobra's own commands.
func builtin(c *cobra.Command) bool {
	return c.Name() == "help" || c.Name() == "completion" || (c.HasParent() && c.Parent().Name() == "completion")
}

func TestEveryCommandIsExplained(t *testing.T) {
	count := 0
	walk(tree(), func(c *cobra.Command) {
		if builtin(c) {
			return
		}
		count++
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: the short help is one line without a full stop, not %q", path, c.Short)
		}
		if len(c.Long) < 40 {
			t.Errorf("%s: no long help", path)
		}
		if !strings.Contains(c.Example, "cleave") {
			t.Errorf("%s: no example", path)
		}
		if !c.HasParent() || c.HasSubCommands() {
			return
		}
		if !strings.Contains(c.Example, path) && !strings.Contains(c.Example, "| cleave") {
			t.Errorf("%s: the example does not use it: %s", path, c.Example)
		}
		for _, line := range strings.Split(c.Long+"\n"+c.Example, "\n") {
			if len(line) > 110 {
				t.Errorf("%s: help line is too long for a terminal: %q", path, line)
			}
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s has no help", path, f.Name)
			}
		})
	})
	if count < 20 {
		t.Errorf("only %d commands were seen", count)
	}
}

// TestExamplesParse takes every example line that calls cleave and sees that
// the command and its flags exist.
func TestExamplesParse(t *testing.T) {
	walk(tree(), func(c *cobra.Command) {
		if builtin(c) {
			return
		}
		for _, line := range strings.Split(c.Example, "\n") {
			at := strings.Index(line, "cleave ")
			if at < 0 || strings.HasPrefix(strings.TrimSpace(line), "#") || strings.HasPrefix(strings.TrimSpace(line), "psql") {
				continue
			}
			parses(t, c.CommandPath(), line[at+len("cleave "):])
		}
	})
}

// TestPagesParse does the same for the commands of the pages' sh blocks.
func TestPagesParse(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, page := range append(pages, "../../README.md", "../../deploy/README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range strings.Split(string(text), "\n```sh")[1:] {
			block, _, _ = strings.Cut(block, "\n```")
			for line := range strings.Lines(block) {
				line, _, _ = strings.Cut(strings.TrimSpace(line), "  #")
				if command, ok := strings.CutPrefix(strings.TrimSpace(line), "cleave "); ok {
					count++
					parses(t, page, command)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("only %d commands were seen", count)
	}
}

// parses reports a command line, without the program's name, whose command, flags or arguments do not exist.
func parses(t *testing.T, where, line string) {
	t.Helper()
	words := shellWords(line)
	root := tree()
	found, rest, err := root.Find(words)
	if err != nil || (found == root && len(words) > 0) {
		t.Errorf("%s: %q is no command: %v", where, line, err)
		return
	}
	found.InheritedFlags()
	if err := found.ParseFlags(rest); err != nil {
		t.Errorf("%s: %q: %v", where, line, err)
		return
	}
	if found.Args != nil {
		if err := found.Args(found, found.Flags().Args()); err != nil {
			t.Errorf("%s: %q: %v", where, line, err)
		}
	}
}

// shellWords splits at blanks outside of quotes, up to a pipe or redirection.
func shellWords(s string) []string {
	var words []string
	var word strings.Builder
	quote, any := rune(0), false
	for _, r := range s {
		switch {
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote, any = r, true
		case quote == 0 && (r == '|' || r == '<' || r == ')'):
			if any {
				words = append(words, word.String())
			}
			return words
		case quote == 0 && r == ' ':
			if any {
				words = append(words, word.String())
			}
			word.Reset()
			any = false
		default:
			word.WriteRune(r)
			any = true
		}
	}
	if any {
		words = append(words, word.String())
	}
	return words
}

const manualHead = `# The command line

This page is made of the program's own help (` + "`make docs`" + `); a test keeps the two equal. What the settings mean is in
[configuration](configuration.md).

`

func manual() []byte {
	var b bytes.Buffer
	b.WriteString(manualHead)
	walk(tree(), func(c *cobra.Command) {
		if builtin(c) {
			return
		}
		fmt.Fprintf(&b, "%s `%s`\n\n%s.\n\n", strings.Repeat("#", 2+strings.Count(c.CommandPath(), " ")), c.CommandPath(), c.Short)
		fmt.Fprintf(&b, "```text\n%s\n", c.Long)
		if c.Runnable() {
			fmt.Fprintf(&b, "\nUsage:\n  %s\n", c.UseLine())
		}
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
		if c.HasSubCommands() {
			b.WriteString("\nCommands:\n")
			for _, child := range c.Commands() {
				if child.IsAvailableCommand() {
					fmt.Fprintf(&b, "  %-11s %s\n", child.Name(), child.Short)
				}
			}
		}
		c.InitDefaultHelpFlag()
		if c.HasAvailableLocalFlags() {
			fmt.Fprintf(&b, "\nFlags:\n%s", c.LocalFlags().FlagUsages())
		}
		b.WriteString("```\n\n")
	})
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

func TestManual(t *testing.T) {
	golden(t, "../../docs/cli.md", manual())
}

const (
	tableBegin = "<!-- settings: made by make docs -->\n"
	tableEnd   = "<!-- end of settings -->"
)

func TestSettingsTable(t *testing.T) {
	const page = "../../docs/configuration.md"
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(old), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost the marks %q and %q", page, tableBegin, tableEnd)
	}
	var b strings.Builder
	b.WriteString("| setting | meaning | values | default | new value in force |\n|---|---|---|---|---|\n")
	for _, s := range config.Settings() {
		def, when := "`"+s.Default+"`", "after a restart"
		if s.Default == "" {
			def = "empty"
		}
		if s.Reload {
			when = "on SIGHUP"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name, s.Help, s.Allowed, def, when)
	}
	golden(t, page, []byte(before+tableBegin+b.String()+tableEnd+after))
}

func golden(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	g, w := strings.Split(string(got), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		var a, b string
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			t.Fatalf("%s is out of date in line %d (make docs writes it anew)\n page: %s\n help: %s", path, i+1, a, b)
		}
	}
}
