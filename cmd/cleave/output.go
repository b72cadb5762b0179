package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
)

// printJSON writes v as one indented JSON value.
func (a *app) printJSON(v any) error {
	return terminal.JSON(a.stdout, v)
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
	return terminal.Table(a.stdout, head, rows)
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
			fmt.Fprintf(a.stdout, "  %s\n", terminal.Printable(step))
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(a.stderr, "warning: %s\n", terminal.Printable(w))
	}
	last := fmt.Sprintf("map version %d", r.Version)
	if !r.Done {
		last = "nothing was changed (--dry-run)"
	}
	_, err := fmt.Fprintln(a.stdout, last)
	return err
}
