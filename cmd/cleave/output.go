package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
)

// printJSON writes v as one indented JSON value.
func (a *app) printJSON(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printList writes rows as JSON or as a table; none says what to print for no rows.
func printList[T any](a *app, items []T, none string, head []string, row func(T) []string) error {
	if a.json {
		if items == nil {
			items = []T{}
		}
		return a.printJSON(items)
	}
	if len(items) == 0 {
		_, err := fmt.Fprintln(a.stdout, none)
		return err
	}
	rows := make([][]string, len(items))
	for i, it := range items {
		rows[i] = row(it)
	}
	return writeTable(a.stdout, head, rows)
}

// writeTable writes aligned columns with a heading.
func writeTable(w io.Writer, head []string, rows [][]string) error {
	width := make([]int, len(head))
	for i, h := range head {
		width[i] = utf8.RuneCountInString(h)
	}
	for _, r := range rows {
		for i, c := range r {
			width[i] = max(width[i], utf8.RuneCountInString(printable(c)))
		}
	}
	var b strings.Builder
	line := func(cells []string) {
		for i, c := range cells {
			c = printable(c)
			b.WriteString(c)
			if i < len(cells)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-utf8.RuneCountInString(c)+2))
			}
		}
		b.WriteByte('\n')
	}
	line(head)
	for _, r := range rows {
		line(r)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printable takes out of a text what would move a terminal's cursor: names and
// rows come from other people.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0):
			return '?'
		}
		return r
	}, s)
}

// change holds the flags of a command that changes the cluster.
type change struct {
	why    string
	dryRun bool
}

func (c *change) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.why, "why", "", "reason, one line, for the map's history")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "print the plan and change nothing")
}

func (c *change) meta() admin.Meta {
	return admin.Meta{By: actor(), Why: c.why, DryRun: c.dryRun}
}

// printResult writes what a change did, or would do.
func (a *app) printResult(v any, r *admin.Result) error {
	if a.json {
		return a.printJSON(v)
	}
	if len(r.Plan) > 0 {
		head := "plan:"
		if r.Done {
			head = "done:"
		}
		fmt.Fprintln(a.stdout, head)
		for _, step := range r.Plan {
			fmt.Fprintf(a.stdout, "  %s\n", printable(step))
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", printable(w))
	}
	last := fmt.Sprintf("map version %d", r.Version)
	if !r.Done {
		last = "nothing was changed (--dry-run)"
	}
	_, err := fmt.Fprintln(a.stdout, last)
	return err
}
