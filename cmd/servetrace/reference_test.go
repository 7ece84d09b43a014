package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write docs/reference/cli.md anew from the command tree")

// referencePage is docs/reference/cli.md: an introduction by hand, and below this line
// the help of the commands.
const (
	referencePage = "../../docs/reference/cli.md"
	referenceLine = "<!-- Below, what --help says: go test ./cmd/servetrace -run TestReference -update writes it. -->\n"
)

// TestReferenceIsTheCommandTree compares every command, flag, default and text of
// the page with the command's own.
func TestReferenceIsTheCommandTree(t *testing.T) {
	page, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	intro, got, found := strings.Cut(string(page), referenceLine)
	if !found {
		t.Fatalf("%s has no line %q", referencePage, referenceLine)
	}
	var want bytes.Buffer
	all := commands(newRoot(func(string) string { return "" }, nil))
	shared := sharedFlags(all)
	writeSharedFlags(&want, shared)
	for _, cmd := range all {
		if cmd.HasSubCommands() {
			continue // the introduction is about the groups
		}
		writeReference(&want, cmd, shared)
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		if link := fmt.Sprintf("- [`%s`](#servetrace-%s): ", name, strings.ReplaceAll(name, " ", "-")); !strings.Contains(intro, link) {
			t.Errorf("%s: the introduction has no line %q", referencePage, link)
		}
	}
	if *update {
		if err := os.WriteFile(referencePage, []byte(intro+referenceLine+want.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("%s is not what the commands say; run: go test ./cmd/servetrace -run TestReference -update (-want +got):\n%s", referencePage, diff)
	}
}

// commands returns cmd and all commands below it, without the commands that cobra adds.
func commands(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		all = append(all, commands(below)...)
	}
	return all
}

// sharedFlags returns the lines about flags that several commands need, with the names
// of these commands.
func sharedFlags(all []*cobra.Command) map[string][]string {
	lines := map[string][]string{}
	for _, cmd := range all {
		_, name, _ := strings.Cut(cmd.CommandPath(), " ")
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { lines[flagLine(f)] = append(lines[flagLine(f)], "`"+name+"`") })
	}
	maps.DeleteFunc(lines, func(_ string, names []string) bool { return len(names) == 1 })
	return lines
}

// writeSharedFlags writes the shared lines. A flag with several lines has a meaning of its
// own for some commands, so each of its lines names the commands.
func writeSharedFlags(w *bytes.Buffer, shared map[string][]string) {
	fmt.Fprint(w, "\n## Flags of several commands\n\n")
	meanings := map[string]int{}
	for line := range shared {
		meanings[flagOf(line)]++
	}
	for _, line := range slices.Sorted(maps.Keys(shared)) {
		if meanings[flagOf(line)] > 1 {
			line = strings.TrimSuffix(line, "\n") + "; for " + strings.Join(shared[line], ", ") + "\n"
		}
		fmt.Fprint(w, line)
	}
}

// flagOf returns the flag of a line of flagLine.
func flagOf(line string) string {
	flag, _, _ := strings.Cut(strings.TrimPrefix(line, "- "), ": ")
	return flag
}

func writeReference(w *bytes.Buffer, cmd *cobra.Command, shared map[string][]string) {
	fmt.Fprintf(w, "\n## %s\n", cmd.CommandPath())
	if cmd.Long == "" {
		fmt.Fprintf(w, "\n%s.\n", cmd.Short)
	}
	if args := strings.TrimPrefix(strings.TrimSuffix(cmd.UseLine(), " [flags]"), cmd.CommandPath()); args != "" {
		fmt.Fprintf(w, "\nArguments: `%s`\n", strings.TrimSpace(args))
	}
	for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
		switch {
		case paragraph == "":
		case strings.HasPrefix(paragraph, "  "):
			fmt.Fprintf(w, "\n```\n%s\n```\n", unindent(paragraph))
		default:
			fmt.Fprintf(w, "\n%s\n", inMarkdown.Replace(paragraph))
		}
	}
	var own, also []string
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if line := flagLine(f); shared[line] == nil {
			own = append(own, line)
		} else {
			also = append(also, flagOf(line))
		}
	})
	if also != nil {
		own = append(own, "- [also](#flags-of-several-commands) "+strings.Join(also, ", ")+"\n")
	}
	if own != nil {
		fmt.Fprintf(w, "\n%s", strings.Join(own, ""))
	}
	if cmd.Example != "" {
		fmt.Fprintf(w, "\n```\n%s\n```\n", unindent(cmd.Example))
	}
}

// flagLine returns the line of the page about a flag.
func flagLine(f *pflag.Flag) string {
	value, meaning := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if value != "" {
		name += " " + value
		meaning = strings.TrimSuffix(meaning, ": "+value)
	}
	byDefault := ""
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
		byDefault = " (default `" + f.DefValue + "`)"
	}
	return fmt.Sprintf("- `%s`: %s%s\n", name, inMarkdown.Replace(meaning), byDefault)
}

// inMarkdown keeps a help text from being taken for HTML or a table.
var inMarkdown = strings.NewReplacer("\n", " ", "<", "\\<", "|", `\|`)

// unindent takes the two spaces off each line.
func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

// TestEveryCommandIsWhole wants a help text, an example and completion of each.
func TestEveryCommandIsWhole(t *testing.T) {
	for _, cmd := range commands(newRoot(func(string) string { return "" }, nil)) {
		if cmd.Short == "" || cmd.RunE == nil || cmd.Args == nil {
			t.Errorf("%s: it has no short text, no RunE or takes any argument", cmd.CommandPath())
		}
		if cmd.HasParent() && cmd.HasAvailableLocalFlags() && (cmd.Long == "" || cmd.Example == "") {
			t.Errorf("%s: it has flags, and no long text or example", cmd.CommandPath())
		}
		cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			value, meaning := pflag.UnquoteUsage(f)
			if meaning == "" || strings.HasSuffix(meaning, ".") {
				t.Errorf("%s --%s: meaning %q", cmd.CommandPath(), f.Name, meaning)
			}
			_, offers := cmd.GetFlagCompletionFunc(f.Name)
			_, folders := f.Annotations[cobra.BashCompSubdirsInDir]
			files := value == "FILE"
			if f.Value.Type() == "string" && !offers && !folders && !files && f.Name != "module" {
				t.Errorf("%s --%s: a shell offers files for it, which it is not", cmd.CommandPath(), f.Name)
			}
		})
	}
}
