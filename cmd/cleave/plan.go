package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
)

// planCommand makes plans and shows, approves and ends them.
func planCommand(a *app) *cobra.Command {
	var f change
	var req admin.PlanRequest
	var tolerance float64
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Plan moves that balance the cluster, and run them once approved",
		Long: `Measures what each range holds and makes a plan of splits, moves and merges after which
every shard has its share by weight, moving as little as that needs. The plan is stored with
its steps, the bytes to move, the skew before and after and the time that it will take, and
nothing is done before cleave plan approve. What breaks a constraint is moved first. Pins stay
where they are unless a constraint wants them elsewhere, and so does what is being moved. Sizes are
estimates from samples of the shards' rows. Ranges of hash keyspaces are cut in the middle of their positions,
those of range keyspaces at a key of the shard's rows.

One plan is carried out at a time: while another one, a drain or a spread is under way, a plan is
neither made nor approved (55000); nor is one approved of which a part has another owner by now. A shard
that does not answer ends the measuring: nothing is planned because of it. The same as SELECT cleave.plan(...).`,
		Example: `  cleave plan --keyspace hash_bigint --tolerance 0.05
  cleave plan --split-bytes 10000000000 --merge-bytes 1000000
  cleave plan --by load --split-load 500 --alone-load 200
  cleave plan show rebalance-1a2b3c4d
  cleave plan approve rebalance-1a2b3c4d`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req.Meta = f.meta()
			if cmd.Flags().Changed("tolerance") {
				req.Tolerance = &tolerance
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.Plan(cmd.Context(), req)
			if err != nil || res.Workflow == nil {
				if err == nil {
					return a.begin(cmd, false, func(context.Context, *api.Client) (*admin.WorkflowResult, error) { return res, nil })
				}
				return err
			}
			return a.showPlan(cmd, c, res.Workflow.ID, true)
		},
	}
	f.flags(cmd)
	flags := cmd.Flags()
	flags.StringVar(&req.ID, "id", "", "name of the plan (default: one is made)")
	flags.StringVar(&req.Keyspace, "keyspace", "", "only this keyspace (default: all)")
	flags.StringVar(&req.Measure, "by", "bytes", "what is to be even: bytes, rows, load (statements) or both (bytes and load)")
	flags.Float64Var(&tolerance, "tolerance", admin.DefaultTolerance, "how far above its share a shard may be and give nothing: 0.05 is 5 per cent")
	flags.Int64Var(&req.SplitBytes, "split-bytes", 0, "cut ranges above this size in halves; 0 is never")
	flags.Int64Var(&req.MergeBytes, "merge-bytes", 0, "merge neighbours of one shard that are below this size together; 0 is never")
	flags.Float64Var(&req.SplitLoad, "split-load", 0, "cut ranges with more statements a second in halves; 0 is never")
	flags.Float64Var(&req.MergeLoad, "merge-load", 0, "merge neighbours of one shard that have fewer statements a second together; 0 is never")
	flags.Float64Var(&req.AloneLoad, "alone-load", 0, "place hot keys with more statements a second by themselves; 0 is never")
	flags.Int64Var(&req.MovedBytesMax, "moved-bytes-max", 0, "leave moves beyond this sum for the next plan; 0 is no bound")
	flags.IntVar(&req.AtOnce, "at-once", 0, "moves at a time; 0 is as many as the coordinator carries out")
	flags.BoolVar(&req.Approve, "approve", false, "carry it out as soon as it is made")
	flags.Int64Var(&req.RowsPerSecond, "rows-per-second", 0, "bound of each move's copy and clean-up; 0 is none")
	flags.Int64Var(&req.BytesPerSecond, "bytes-per-second", 0, "bound of each move's copy; 0 is none")
	howFlags(cmd, &req.MoveOptions)
	cmd.AddCommand(planShowCommand(a), planApproveCommand(a), planCancelCommand(a))
	return cmd
}

func planShowCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show a plan: its steps, bytes, skew before and after, and time",
		Long: `Prints a stored plan with its steps; a star is before those that were begun. The figures
after a shard's name are what it holds over its share by weight: 1 is even.`,
		Example: "  cleave plan show rebalance-1a2b3c4d",
		Args:    args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			return a.showPlan(cmd, c, given[0], false)
		}),
	}
}

func planApproveCommand(a *app) *cobra.Command {
	cmd := wishCommand(a, "approve", "Let a plan be carried out", `Carries the steps of a plan out: splits, then moves, then merges, some at a time. cleave moves
shows them; cleave pause and cleave cancel hold it up and end it.`, (*api.Client).Approve)
	cmd.Example, cmd.Aliases = "  cleave plan approve rebalance-1a2b3c4d", []string{"apply"}
	return cmd
}

func planCancelCommand(a *app) *cobra.Command {
	cmd := wishCommand(a, "cancel", "End a plan", `Ends a plan. Moves of it that are before their cutover are cancelled; what is done stays.`, (*api.Client).Cancel)
	cmd.Example = "  cleave plan cancel rebalance-1a2b3c4d"
	return cmd
}

// showPlan prints a plan; wait: as soon as it is made.
func (a *app) showPlan(cmd *cobra.Command, c *api.Client, id string, wait bool) error {
	p, err := c.ShowPlan(cmd.Context(), id)
	for wait && err == nil && !p.Workflow.Ended && p.Workflow.Step == "planning" {
		select {
		case <-cmd.Context().Done():
			return a.left(id)
		case <-time.After(followEvery):
		}
		p, err = c.ShowPlan(cmd.Context(), id)
	}
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(p)
	}
	w := &p.Workflow
	fmt.Fprintf(a.stdout, "plan %s: %s\n", w.ID, w.Step)
	if w.Error != "" {
		fmt.Fprintf(a.stdout, "error: %s\n", terminal.Printable(w.Error))
	}
	if p.Plan == nil {
		return nil
	}
	printPlan(a.stdout, p)
	if w.Step == "proposed" {
		fmt.Fprintf(a.stdout, "to carry it out: cleave plan approve %s; to drop it: cleave plan cancel %s\n", w.ID, w.ID)
	}
	return nil
}

// printPlan prints the steps of a plan, and what it makes of the shards.
func printPlan(out io.Writer, p *admin.PlanInfo) {
	for i, line := range p.Lines() {
		mark := "  "
		if i < p.Begun {
			mark = "* "
		}
		fmt.Fprintf(out, "%s%s  %s\n", mark, terminal.Printable(line), byteText(p.Plan.Steps[i].Bytes))
	}
	fmt.Fprintf(out, "%d steps, %s of %d rows to move, about %s; made from map version %d\n", len(p.Plan.Steps), byteText(p.Plan.Bytes), p.Plan.Rows,
		(time.Duration(p.Plan.Seconds*float64(time.Second)) + time.Second).Truncate(time.Second), p.Plan.Version)
	fmt.Fprintf(out, "skew %.2f now, %.2f afterwards (the fullest shard over its share)\n", p.Plan.SkewBefore, p.Plan.SkewAfter)
	for _, s := range p.Plan.Skews {
		fmt.Fprintf(out, "  of %s: %.2f -> %.2f\n", s.By, s.Before, s.After)
	}
	if p.Plan.Broken > 0 {
		fmt.Fprintf(out, "it repairs what breaks %d constraints\n", p.Plan.Broken)
	}
	if p.Plan.Left > 0 {
		fmt.Fprintf(out, "%d moves are left for the next plan by the bound on bytes\n", p.Plan.Left)
	}
	after := map[string]string{}
	for _, s := range p.Plan.After {
		after[s.Shard] = byteText(s.Bytes) + " (" + strconv.FormatFloat(s.Over, 'f', 2, 64) + ")"
	}
	for _, s := range p.Plan.Before {
		fmt.Fprintf(out, "  %s: %s (%.2f) -> %s\n", s.Shard, byteText(s.Bytes), s.Over, after[s.Shard])
	}
}
