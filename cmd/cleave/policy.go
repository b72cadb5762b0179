package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/workflow"
)

// policyCommand shows and sets when the cluster makes itself even.
func policyCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policy",
		Short: "Show when the cluster rebalances automatically",
		Long: `Shows the policy by which plans are made: manual (the default: only when somebody asks for
one), propose (the leader makes plans, which wait for cleave plan approve) or auto (it makes
them and carries them out, within the limits). It also says what the last look found. The same
as SELECT * FROM cleave.policy.

Nothing is ever begun because a shard does not answer: then nothing is measured.`,
		Example: "  cleave policy",
		Args:    args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			p, err := c.Policy(cmd.Context())
			if err != nil {
				return err
			}
			return a.printPolicy(p)
		}),
	}
	cmd.AddCommand(policySetCommand(a))
	return cmd
}

func policySetCommand(a *app) *cobra.Command {
	var ch change
	var mode, keyspace, by, every, hold, cool, window string
	var minSkew, tolerance, splitLoad, aloneLoad float64
	var splitBytes, perDay, perSecond int64
	var atOnce int
	cmd := &cobra.Command{
		Use:   "set",
		Short: "Change when the cluster rebalances automatically",
		Long: `Changes the policy; what is not given stays as it is. A plan is begun when for --hold each
look found something worth doing: a skew of --min-skew, a broken constraint, a range to be cut
or merged, a hot key. After a plan nothing is done for --cool. The same as SELECT
cleave.set_policy(...).`,
		Example: `  cleave policy set --mode propose --by load
  cleave policy set --mode auto --by both --min-skew 1.3 --window 'Mon-Fri 22:00-06:00'
  cleave policy set --mode manual --dry-run`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := admin.PolicyRequest{Meta: ch.meta()}
			given := cmd.Flags().Changed
			pick(given("mode"), &req.Mode, &mode)
			pick(given("keyspace"), &req.Keyspace, &keyspace)
			pick(given("by"), &req.Measure, &by)
			pick(given("min-skew"), &req.MinSkew, &minSkew)
			pick(given("tolerance"), &req.Tolerance, &tolerance)
			pick(given("split-bytes"), &req.SplitBytes, &splitBytes)
			pick(given("split-load"), &req.SplitLoad, &splitLoad)
			pick(given("alone-load"), &req.AloneLoad, &aloneLoad)
			pick(given("every"), &req.Every, &every)
			pick(given("hold"), &req.Hold, &hold)
			pick(given("cool"), &req.Cool, &cool)
			pick(given("at-once"), &req.AtOnce, &atOnce)
			pick(given("bytes-per-day"), &req.BytesPerDay, &perDay)
			pick(given("bytes-per-second"), &req.BytesPerSecond, &perSecond)
			pick(given("window"), &req.Window, &window)
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			p, err := c.SetPolicy(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printPolicy(p)
		},
	}
	ch.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&mode, "mode", "", "manual, propose or auto")
	f.StringVar(&keyspace, "keyspace", "", "only this keyspace; empty is all")
	f.StringVar(&by, "by", "", "what is to be even: bytes, rows, load (statements) or both (bytes and load)")
	f.Float64Var(&minSkew, "min-skew", 0, "skew from which on something is done (1.25 unless set)")
	f.Float64Var(&tolerance, "tolerance", 0, "how far above its share a plan leaves a shard (0.1 unless set)")
	f.Int64Var(&splitBytes, "split-bytes", 0, "split ranges above this size and merge those below a quarter; 0 is never")
	f.Float64Var(&splitLoad, "split-load", 0, "the same, in statements a second")
	f.Float64Var(&aloneLoad, "alone-load", 0, "place keys above this load by themselves; 0 is never")
	f.StringVar(&every, "every", "", "how often the cluster is measured (5m unless set)")
	f.StringVar(&hold, "hold", "", "for how long something must be amiss before it is acted on (10m unless set)")
	f.StringVar(&cool, "cool", "", "how long after a plan nothing is done (1h unless set)")
	f.IntVar(&atOnce, "at-once", 0, "moves at a time (2 unless set)")
	f.Int64Var(&perDay, "bytes-per-day", 0, "what plans of the policy may move from one midnight UTC to the next; 0 is no bound")
	f.Int64Var(&perSecond, "bytes-per-second", 0, "bound of each move; 0 is none")
	f.StringVar(&window, "window", "", "begin plans and move rows only then, see cleave move --help; empty is always")
	return cmd
}

func pick[T any](given bool, into **T, value *T) {
	if given {
		*into = value
	}
}

func (a *app) printPolicy(p *admin.PolicyInfo) error {
	if a.json {
		return a.printJSON(p)
	}
	fmt.Fprintln(a.stdout, policyText(&p.Policy))
	if p.At != nil {
		fmt.Fprintf(a.stdout, "last look %s: %s\n", p.At.Local().Format("2006-01-02 15:04:05"), terminal.Printable(p.Note))
	}
	if p.Plan != "" {
		fmt.Fprintf(a.stdout, "last plan: %s; moved today: %s\n", p.Plan, byteText(p.MovedToday))
	}
	for _, l := range p.History {
		fmt.Fprintf(a.stdout, "  %s  %s  %s  %s\n", l.At.Local().Format("2006-01-02 15:04:05"), l.By, l.Policy.Mode, terminal.Printable(l.Why))
	}
	return nil
}

// policyText is a policy in a few lines.
func policyText(p *workflow.Policy) string {
	seconds := func(n int64) string { return (time.Duration(n) * time.Second).String() }
	number := func(n float64) string { return strconv.FormatFloat(n, 'g', 4, 64) }
	text := string(p.Mode) + ": even out " + p.By
	if p.Keyspace != "" {
		text += " of keyspace " + p.Keyspace
	}
	text += " from a skew of " + number(p.MinSkew) + " on, to within " + number(p.Tolerance) +
		"\nmeasure every " + seconds(p.EverySeconds) + ", act after " + seconds(p.HoldSeconds) + ", rest for " + seconds(p.CoolSeconds)
	if p.SplitBytes > 0 {
		text += "\nsplit ranges above " + byteText(p.SplitBytes) + ", merge below " + byteText(p.SplitBytes/4)
	}
	if p.SplitLoad > 0 {
		text += "\nsplit ranges above " + number(p.SplitLoad) + " statements a second, merge below " + number(p.SplitLoad/4)
	}
	if p.AloneLoad > 0 {
		text += "\nplace keys above " + number(p.AloneLoad) + " statements a second by themselves"
	}
	if p.AtOnce > 0 {
		text += fmt.Sprintf("\nat most %d moves at a time", p.AtOnce)
	}
	if p.BytesPerDay > 0 {
		text += "\nat most " + byteText(p.BytesPerDay) + " a day"
	}
	if p.Window != "" {
		text += "\nonly " + p.Window
	}
	return text
}
