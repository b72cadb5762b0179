package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
)

// moveFlags are the flags of commands that move rows.
type moveFlags struct {
	change
	id   string
	wait bool
	how  admin.MoveOptions
}

func (f *moveFlags) flags(cmd *cobra.Command, keep string) {
	f.change.flags(cmd)
	cmd.Flags().StringVar(&f.id, "id", "", "name of the workflow: asked for twice with the same, it is done once (default: one is made)")
	cmd.Flags().BoolVar(&f.wait, "wait", false, "show the progress until it is done; an interrupt ends the showing, not the work")
	f.howFlags(cmd, keep)
}

// howFlags are those of how rows are moved.
func (f *moveFlags) howFlags(cmd *cobra.Command, keep string) {
	cmd.Flags().StringVar(&f.how.Keep, "keep", "", "for how long a move can be reversed after its cutover, such as 30m; 0 is not at all (default "+keep+")")
	cmd.Flags().BoolVar(&f.how.Unverified, "unverified", false, "do not compare both copies before the cutover")
	cmd.Flags().Int64Var(&f.how.RowsPerSecond, "rows-per-second", 0, "bound of copy and clean-up; 0 is none")
	cmd.Flags().Int64Var(&f.how.BytesPerSecond, "bytes-per-second", 0, "bound of the copy; 0 is none")
	howFlags(cmd, &f.how)
}

// howFlags are the flags of throttles, which plans have too.
func howFlags(cmd *cobra.Command, how *admin.MoveOptions) {
	cmd.Flags().StringVar(&how.Window, "window", "", "copy, compare, change the owner and clean up only then, such as 'Mon-Fri 22:00-06:00 Europe/Zurich'; several with ; between them")
	cmd.Flags().StringVar(&how.MaxLatency, "max-latency", "", "slow down while a small write takes longer on either shard, such as 20ms; off is no bound (default: by what the work adds where others are at work)")
	cmd.Flags().StringVar(&how.MaxLag, "max-lag", "", "slow down while a replica of either shard is further behind, such as 30s; off is no bound (default 10s)")
	cmd.Flags().Int64Var(&how.MaxLagBytes, "max-lag-bytes", 0, "the same in bytes; 0 is no bound")
}

// part holds the flags that say what is moved.
type partFlags struct {
	keyspace, rang, key string
}

func moveCommand(a *app) *cobra.Command {
	var f moveFlags
	var p partFlags
	var to string
	cmd := &cobra.Command{
		Use:   "move --keyspace K (--range LOW:HIGH | --key KEY) --to SHARD",
		Short: "Move a key range or one key to another shard while it is in use",
		Long: `Moves the rows of a part of a keyspace to another shard. The rows are copied while
statements go on, changes follow, both copies are compared, and then statements in the part
wait for a moment while the other shard becomes the owner. After that changes are replicated
to the old owner, so that cleave reverse can make it the owner again. That ends with --keep or
with cleave complete, which deletes the rows on the old owner.

A range is LOW:HIGH, where an empty bound is none; bounds with colons are written
LOW..HIGH, those of several columns with commas. In a hash keyspace bounds are positions, as
cleave map show prints them. A key is moved by itself, and pinned to the shard.

The work is done by the leader of the cluster's coordinators: every cleave up and cleave
router has one. The command returns as soon as the move is stored; --wait shows its progress,
cleave moves shows it at any time. The same as SELECT cleave.move(...).`,
		Example: `  cleave move --keyspace hash_bigint --range 0:4611686018427387904 --to shard-0 --wait
  cleave move --keyspace orders --range '2026-01-01..2026-02-01' --to archive --keep 1h
  cleave move --keyspace tenants --key 42 --to shard-3 --id big-tenant`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := admin.MoveRequest{Meta: f.meta(), ID: f.id, Keyspace: p.keyspace, Range: p.rang, To: to, MoveOptions: f.how}
			switch {
			case p.keyspace == "":
				return &usageError{errMissing("--keyspace", "see cleave keyspace list"), cmd}
			case to == "":
				return &usageError{errMissing("--to", "the shard that the rows go to"), cmd}
			case p.rang != "" && cmd.Flags().Changed("key"):
				return &usageError{errors.New("--range and --key are both given: a move is of a range or of one key"), cmd}
			case p.rang == "" && !cmd.Flags().Changed("key"):
				return &usageError{errors.New("what is moved is missing: give --range LOW:HIGH or --key KEY"), cmd}
			}
			if cmd.Flags().Changed("key") {
				var err error
				if req.Key, err = splitKey(p.key); err != nil {
					return &usageError{fmt.Errorf("--key %w", err), cmd}
				}
			}
			return a.begin(cmd, f.wait, func(ctx context.Context, c *api.Client) (*admin.WorkflowResult, error) { return c.Move(ctx, req) })
		},
	}
	cmd.Flags().StringVar(&p.keyspace, "keyspace", "", "the keyspace")
	cmd.Flags().StringVar(&p.rang, "range", "", "the range, LOW:HIGH or LOW..HIGH")
	cmd.Flags().StringVar(&p.key, "key", "", "the key; several columns with commas")
	cmd.Flags().StringVar(&to, "to", "", "the shard that the rows go to")
	f.flags(cmd, "24h")
	return cmd
}

func splitCommand(a *app) *cobra.Command {
	var f change
	var p partFlags
	var id, at, half string
	var wait bool
	cmd := &cobra.Command{
		Use:   "split --keyspace K (--at KEY | --range LOW:HIGH [--half rows|load|positions])",
		Short: "Split a key range",
		Long: `Cuts the range that a bound lies in, so that its halves can be moved one by one. No
row is moved. --range cuts one of the ranges in halves: of equal rows, of equal load, or of
equal positions (the default in a hash keyspace). Rows are asked of the shard: of up to 200,000
rows the middle is exact, of more on PostgreSQL it is that of a sample. Load is what cleave heat
shows.`,
		Example: `  cleave split --keyspace orders --at 2026-07-01
  cleave split --keyspace orders --range : --half rows
  cleave split --keyspace hash_bigint --range 0: --half load --dry-run
  cleave split --keyspace hash_bigint --range 0:`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := admin.SplitRequest{Meta: f.meta(), ID: id, Keyspace: p.keyspace, Range: p.rang, Half: half}
			switch {
			case p.keyspace == "":
				return &usageError{errMissing("--keyspace", "see cleave keyspace list"), cmd}
			case p.rang != "" && cmd.Flags().Changed("at"):
				return &usageError{errors.New("--range and --at are both given: a range is cut in halves, or at a key"), cmd}
			case p.rang == "" && !cmd.Flags().Changed("at"):
				return &usageError{errors.New("where to cut is missing: give --at KEY or --range LOW:HIGH"), cmd}
			case half != "" && p.rang == "":
				return &usageError{errors.New("--half is of a --range"), cmd}
			}
			if cmd.Flags().Changed("at") {
				var err error
				if req.At, err = splitKey(at); err != nil {
					return &usageError{fmt.Errorf("--at %w", err), cmd}
				}
			}
			return a.begin(cmd, wait, func(ctx context.Context, c *api.Client) (*admin.WorkflowResult, error) { return c.Split(ctx, req) })
		},
	}
	cmd.Flags().StringVar(&p.keyspace, "keyspace", "", "the keyspace")
	cmd.Flags().StringVar(&at, "at", "", "the key to cut at, which becomes the first of the upper half; several columns with commas")
	cmd.Flags().StringVar(&p.rang, "range", "", "the range that is cut in halves, LOW:HIGH or LOW..HIGH")
	cmd.Flags().StringVar(&half, "half", "", "what both halves have alike: rows, load or positions")
	cmd.Flags().StringVar(&id, "id", "", "name of the workflow (default: one is made)")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until it is done")
	f.flags(cmd)
	return cmd
}

func mergeCommand(a *app) *cobra.Command {
	var f moveFlags
	var keyspace, at, to string
	cmd := &cobra.Command{
		Use:   "merge --keyspace K --at KEY",
		Short: "Merge two neighbouring key ranges",
		Long: `Removes the bound between two ranges. If they are on different shards the upper one is
moved to the lower one's shard first, or both to --to.`,
		Example: `  cleave merge --keyspace orders --at 2026-07-01 --wait`,
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case keyspace == "":
				return &usageError{errMissing("--keyspace", "see cleave keyspace list"), cmd}
			case at == "":
				return &usageError{errMissing("--at", "the bound between the two ranges"), cmd}
			}
			key, err := splitKey(at)
			if err != nil {
				return &usageError{fmt.Errorf("--at %w", err), cmd}
			}
			req := admin.MergeRequest{Meta: f.meta(), ID: f.id, Keyspace: keyspace, At: key, To: to, MoveOptions: f.how}
			return a.begin(cmd, f.wait, func(ctx context.Context, c *api.Client) (*admin.WorkflowResult, error) { return c.Merge(ctx, req) })
		},
	}
	cmd.Flags().StringVar(&keyspace, "keyspace", "", "the keyspace")
	cmd.Flags().StringVar(&at, "at", "", "the bound between the two ranges; several columns with commas")
	cmd.Flags().StringVar(&to, "to", "", "the shard for both (default: the lower one's)")
	f.flags(cmd, "0")
	return cmd
}

func shardDrainCommand(a *app) *cobra.Command {
	var f moveFlags
	var to string
	var complete bool
	cmd := &cobra.Command{
		Use:   "drain NAME",
		Short: "Move all sharded rows off a shard",
		Long: `Moves every range, listed value and pinned key of a shard to the others, by their
weights, or to --to, a few at a time. It waits for an earlier move of the same rows until that
can no longer be reversed, and its progress says so; --complete completes such a move. While a
plan, another drain or a spread is carried out it is refused (55000). Afterwards cleave shard
remove takes the shard out. Unsharded tables stay where they are.`,
		Example: `  cleave shard drain shard-2 --wait
  cleave shard drain shard-2 --dry-run`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			req := admin.DrainRequest{Meta: f.meta(), ID: f.id, Shard: given[0], To: to, Complete: complete, MoveOptions: f.how}
			return a.begin(cmd, f.wait, func(ctx context.Context, c *api.Client) (*admin.WorkflowResult, error) { return c.Drain(ctx, req) })
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the shard that gets everything (default: all others)")
	completeFlag(cmd, &complete, "complete earlier moves that are in the way; they can no longer be reversed")
	f.flags(cmd, "0")
	return cmd
}

func spreadCommand(a *app) *cobra.Command {
	var f moveFlags
	var keyspace string
	var shards []string
	cmd := &cobra.Command{
		Use:   "spread",
		Short: "Spread the key ranges over the shards by weight",
		Long: `Moves ranges between the shards until each has its share by weight: after a shard was
added, for example. It moves as little as that needs, and whole ranges only: split them first
where they are too few.`,
		Example: `  cleave spread --dry-run
  cleave spread --keyspace hash_bigint --wait`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			req := admin.SpreadRequest{Meta: f.meta(), ID: f.id, Keyspace: keyspace, Shards: shards, MoveOptions: f.how}
			return a.begin(cmd, f.wait, func(ctx context.Context, c *api.Client) (*admin.WorkflowResult, error) { return c.Spread(ctx, req) })
		},
	}
	cmd.Flags().StringVar(&keyspace, "keyspace", "", "the keyspace (default: all)")
	cmd.Flags().StringArrayVar(&shards, "shard", nil, "a shard that gets something; can be repeated (default: all)")
	f.flags(cmd, "0")
	return cmd
}

// begin begins a workflow, says what it does, and shows its progress if it is to.
func (a *app) begin(cmd *cobra.Command, wait bool, ask func(context.Context, *api.Client) (*admin.WorkflowResult, error)) error {
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	defer c.Close()
	res, err := ask(cmd.Context(), c)
	if err != nil {
		return err
	}
	if wait && res.Workflow != nil {
		if !a.json {
			fmt.Fprintf(a.stdout, "%s %s\n", res.Workflow.Kind, res.Workflow.ID)
		}
		w, err := a.follow(cmd.Context(), c, res.Workflow.ID)
		if w != nil {
			res.Workflow = w
		}
		if err != nil || !a.json {
			return err
		}
	}
	var failed error
	switch {
	case len(res.Refused) > 0:
		failed = errors.New("it would be refused: see the plan")
	case !wait && res.Workflow != nil:
		w, err := soon(cmd.Context(), c, res.Workflow)
		if err != nil {
			return err
		}
		if res.Workflow = w; w.Ended {
			failed = a.outcome(w)
		}
	}
	if a.json {
		return errors.Join(a.printJSON(res), failed)
	}
	return errors.Join(printBegun(a.stdout, res), failed)
}

// printBegun prints the plan of a workflow, and whether it was begun.
func printBegun(out io.Writer, res *admin.WorkflowResult) (err error) {
	head := "plan:"
	if res.Done {
		head = "begun:"
	}
	fmt.Fprintln(out, head)
	for _, line := range res.Plan {
		fmt.Fprintf(out, "  %s\n", terminal.Printable(line))
	}
	switch {
	case !res.Done:
		_, err = fmt.Fprintln(out, "nothing was changed (--dry-run)")
	case res.Workflow != nil:
		_, err = fmt.Fprintf(out, "%s\nsee: cleave moves %s\n", res.Workflow.ID, res.Workflow.ID)
	}
	return err
}

// soonMax is how long is looked whether what was begun fails at once, soonEvery how often.
const (
	soonMax   = 2 * time.Second
	soonEvery = 25 * time.Millisecond
)

// soon looks at a workflow until it has begun to move rows: what is refused by its checks has failed by then. One that
// waits for a place, a window or a leader is left alone.
func soon(ctx context.Context, c *api.Client, w *admin.WorkflowInfo) (*admin.WorkflowInfo, error) {
	for began := time.Now(); !w.Ended && (w.Step == "planned" || w.Step == "preparing") && w.Note == "" && time.Since(began) < soonMax; {
		select {
		case <-ctx.Done():
			return w, nil
		case <-time.After(soonEvery):
		}
		list, err := c.Moves(ctx, w.ID)
		if err != nil {
			return w, err
		}
		w = &list[0]
	}
	return w, nil
}

// followEvery is how often progress is shown. A workflow that has just begun is looked at more often, since a small
// move is over within a second.
const followEvery = 500 * time.Millisecond

// follow shows a workflow's progress until it has ended or is opened.
func (a *app) follow(ctx context.Context, c *api.Client, id string) (*admin.WorkflowInfo, error) {
	said := ""
	for every := soonEvery; ; every = min(every*5/4, followEvery) {
		list, err := c.Moves(ctx, id)
		if err != nil {
			if ctx.Err() != nil {
				return nil, a.left(id)
			}
			return nil, err
		}
		w := &list[0]
		if line := progressLine(w); line != said && !a.json {
			fmt.Fprintln(a.stdout, line)
			said = line
		}
		if w.Ended || w.Step == "opened" {
			return w, a.outcome(w)
		}
		select {
		case <-ctx.Done():
			return w, a.left(id)
		case <-time.After(every):
		}
	}
}

// left says that the work goes on without us.
func (a *app) left(id string) error {
	_, err := fmt.Fprintf(a.stderr, "%s goes on; see: cleave moves %s; to end it: cleave cancel %s\n", id, id, id)
	return err
}

// outcome is an error if a workflow did not come to what was asked for.
func (a *app) outcome(w *admin.WorkflowInfo) error {
	switch {
	case w.Step == "failed" || w.Step == "cancelled":
		why := w.Error
		if why == "" {
			why = "it was " + w.Step
		}
		return fmt.Errorf("%s: %s\nnext: cleave moves %s", w.ID, why, w.ID)
	case a.json:
		return nil
	case w.Step == "opened" && w.BackLost != "":
		_, err := fmt.Fprintf(a.stdout, "%s is the owner; statements waited for %d ms.\n%s", w.To, w.HeldMS, backText(w))
		return err
	case w.Step == "opened":
		until := ""
		if w.KeptUntil != nil {
			until = " until " + w.KeptUntil.Local().Format("2006-01-02 15:04:05")
		}
		_, err := fmt.Fprintf(a.stdout, "%s is the owner; statements waited for %d ms. It can be reversed%s.\nto reverse it: cleave reverse %s; to complete it now: cleave complete %s\n", w.To, w.HeldMS, until, w.ID, w.ID)
		return err
	}
	return nil
}

// backText says whether a move can be reversed, in lines.
func backText(w *admin.WorkflowInfo) string {
	const moment = "2006-01-02 15:04:05"
	text := ""
	if w.BackLost != "" {
		text = fmt.Sprintf("it cannot be reversed: %s\n", terminal.Printable(w.BackLost))
	}
	if w.RowsUntil != nil {
		text += fmt.Sprintf("the old rows on %s are deleted at %s; to delete them now: cleave complete %s\n", w.From, w.RowsUntil.Local().Format(moment), w.ID)
	}
	if w.KeptUntil != nil {
		text += fmt.Sprintf("it can be reversed until %s\n", w.KeptUntil.Local().Format(moment))
	}
	return text
}

// notBack is an error if a move that was to be reversed, and is not any more on its way, has its new owner.
func notBack(w *admin.WorkflowInfo) error {
	switch {
	case w.Back || w.Step != "opened" && w.Step != "cleaning" && w.Step != "done":
		return nil
	case w.BackLost == "":
		return fmt.Errorf("%s was not reversed: somebody has ended that\nnext: cleave moves %s", w.ID, w.ID)
	}
	return fmt.Errorf("%s was not reversed: %s\nnext: cleave moves %s", w.ID, terminal.Printable(w.BackLost), w.ID)
}

// timeLeft is how long a step will go on, if that is known.
func timeLeft(w *admin.WorkflowInfo) string {
	if w.ETA < 0 {
		return ""
	}
	return ", about " + (time.Duration(w.ETA) * time.Second).String() + " left"
}

// progressLine is a workflow's progress in one line.
func progressLine(w *admin.WorkflowInfo) string {
	var b strings.Builder
	b.WriteString(w.Step)
	if w.Back && !w.Ended {
		b.WriteString(" (reversing)")
	}
	if w.Paused {
		b.WriteString(" (paused)")
	}
	b.WriteString(stepProgress(w))
	if len(w.Children) > 0 {
		fmt.Fprintf(&b, ": %s", strings.Join(w.Children, ", "))
	}
	if w.Note != "" {
		fmt.Fprintf(&b, "; %s", terminal.Printable(w.Note))
	}
	if w.Error != "" {
		fmt.Fprintf(&b, " (%s)", terminal.Printable(w.Error))
	}
	return b.String()
}

// stepProgress is how far the step of a workflow has come.
func stepProgress(w *admin.WorkflowInfo) string {
	switch {
	case w.Step == "copying":
		pace := ""
		if w.RowsPerSecond > 0 {
			pace = fmt.Sprintf(", %.0f rows/s, %s/s", w.RowsPerSecond, byteText(int64(w.BytesPerSecond)))
		}
		return fmt.Sprintf(": %d of about %d rows, %s%s%s", w.Rows, max(w.Rows, w.RowsAll), byteText(w.Bytes), pace, timeLeft(w))
	case w.Step == "verifying" && w.Bytes > 0:
		return fmt.Sprintf(": %s of about %s compared%s", byteText(w.Bytes), byteText(max(w.Bytes, w.BytesAll)), timeLeft(w))
	case (w.Step == "cleaning" || w.Step == "cancelling") && w.Rows > 0:
		return fmt.Sprintf(": %d of about %d rows deleted%s", w.Rows, max(w.Rows, w.RowsAll, w.Copied), timeLeft(w))
	case w.Step == "done" && w.Copied > 0:
		return fmt.Sprintf(": %d rows moved", w.Copied)
	case w.LagBytes >= 0 && !w.Ended:
		return fmt.Sprintf(": %s behind, %d changes applied", byteText(w.LagBytes), w.Changes)
	}
	return ""
}

func byteText(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

func movesCommand(a *app) *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use:   "moves [ID]",
		Short: "Show moves, splits, merges, drains and spreads, with their progress",
		Long: `Lists the workflows that are under way and those that have ended lately, the newest
first. With an ID it shows one with its history. The same as SELECT * FROM cleave.workflows.`,
		Example: `  cleave moves
  cleave moves big-tenant --wait
  cleave moves --json | jq '.[] | select(.ended | not)'`,
		Args: args(0, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			if len(given) == 0 {
				list, err := c.Moves(cmd.Context(), "")
				if err != nil {
					return err
				}
				return printList(a, list, "no workflows", []string{"ID", "KIND", "KEYSPACE", "WHAT", "FROM", "TO", "STATE", "SINCE"}, func(w admin.WorkflowInfo) []string {
					return []string{w.ID, w.Kind, w.Keyspace, w.Part, w.From, w.To, terminal.Clipped(progressLine(&w)), w.Changed.Local().Format("2006-01-02 15:04:05")}
				})
			}
			if wait {
				w, err := a.follow(cmd.Context(), c, given[0])
				if err != nil || !a.json || w == nil {
					return err
				}
				return a.printJSON(w)
			}
			list, err := c.Moves(cmd.Context(), given[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list[0])
			}
			return printWorkflow(a.stdout, &list[0])
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "show the progress until it is done")
	return cmd
}

func printWorkflow(out io.Writer, w *admin.WorkflowInfo) error {
	what := strings.Join(strings.Fields(strings.Join([]string{w.Kind, w.Part, w.Keyspace}, " ")), " ")
	if w.From != "" {
		what += " from " + w.From
	}
	if w.To != "" {
		what += " to " + w.To
	}
	fmt.Fprintf(out, "%s: %s\n%s\n", w.ID, terminal.Printable(what), progressLine(w))
	fmt.Fprint(out, backText(w))
	for _, l := range w.History {
		fmt.Fprintf(out, "  %s  %-11s  %s\n", l.At.Local().Format("15:04:05.000"), l.Step, terminal.Printable(l.What))
	}
	return nil
}

// boundFlags are the bounds that cleave resume changes.
type boundFlags struct {
	rows, bytes, lagBytes int64
	latency, lag          string
}

func (f *boundFlags) flags(cmd *cobra.Command) {
	cmd.Flags().Int64Var(&f.rows, "rows-per-second", 0, "bound of copy and clean-up from now on; 0 is none")
	cmd.Flags().Int64Var(&f.bytes, "bytes-per-second", 0, "bound of the copy from now on; 0 is none")
	cmd.Flags().StringVar(&f.latency, "max-latency", "", "slow down while a small write takes longer on either shard, such as 20ms; off is no bound, '' what adapts itself")
	cmd.Flags().StringVar(&f.lag, "max-lag", "", "slow down while a replica of either shard is further behind, such as 30s; off is no bound, '' 10s")
	cmd.Flags().Int64Var(&f.lagBytes, "max-lag-bytes", 0, "the same in bytes; 0 is no bound")
}

// given are the bounds whose flags were given, nil if none was.
func (f *boundFlags) given(cmd *cobra.Command) *admin.MoveBounds {
	var b admin.MoveBounds
	given := cmd.Flags().Changed
	if given("rows-per-second") {
		b.RowsPerSecond = &f.rows
	}
	if given("bytes-per-second") {
		b.BytesPerSecond = &f.bytes
	}
	if given("max-latency") {
		b.MaxLatency = &f.latency
	}
	if given("max-lag") {
		b.MaxLag = &f.lag
	}
	if given("max-lag-bytes") {
		b.MaxLagBytes = &f.lagBytes
	}
	if b == (admin.MoveBounds{}) {
		return nil
	}
	return &b
}

// wishCommand is a command that asks something of a workflow.
func wishCommand(a *app, name, short, long string, ask func(*api.Client, context.Context, admin.WorkflowRequest) (*admin.WorkflowInfo, error)) *cobra.Command {
	var why string
	var wait, dry bool
	var bounds boundFlags
	cmd := &cobra.Command{
		Use:     name + " ID",
		Short:   short,
		Long:    long,
		Example: "  cleave " + name + " big-tenant",
		Args:    args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			w, err := ask(c, cmd.Context(), admin.WorkflowRequest{Meta: admin.Meta{By: actor(), Why: why, DryRun: dry}, ID: given[0], Bounds: bounds.given(cmd)})
			if err != nil {
				return err
			}
			if dry && !a.json {
				fmt.Fprintf(a.stdout, "%s: %s\nplan:\n", w.ID, progressLine(w))
				for _, line := range w.Plan {
					fmt.Fprintf(a.stdout, "  %s\n", terminal.Printable(line))
				}
				_, err = fmt.Fprintln(a.stdout, "nothing was changed (--dry-run)")
				return err
			}
			if wait && !dry {
				said := ""
				for !w.Ended && err == nil {
					if line := progressLine(w); line != said && !a.json {
						fmt.Fprintln(a.stderr, line)
						said = line
					}
					if w.Step == "opened" && !w.Back && name != "complete" && name != "finish" {
						break
					}
					if w.WaitsForShard != "" {
						return fmt.Errorf("%s: %s: %s\nit goes on when shard %s answers; next: cleave moves %s", w.ID, w.Step, terminal.Printable(w.Error), w.WaitsForShard, w.ID)
					}
					select {
					case <-cmd.Context().Done():
						return a.left(w.ID)
					case <-time.After(followEvery):
					}
					var list []admin.WorkflowInfo
					if list, err = c.Moves(cmd.Context(), w.ID); err == nil {
						w = &list[0]
					}
				}
				if err != nil {
					return err
				}
			}
			var failed error
			if (name == "reverse" || name == "rollback") && wait && !dry {
				failed = notBack(w)
			}
			if a.json {
				return errors.Join(a.printJSON(w), failed)
			}
			_, err = fmt.Fprintf(a.stdout, "%s: %s\n", w.ID, progressLine(w))
			return errors.Join(err, failed)
		}),
	}
	cmd.Flags().StringVar(&why, "why", "", "reason, one line")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be done and change nothing")
	if name == "resume" {
		bounds.flags(cmd)
	}
	if name != "pause" && name != "resume" {
		cmd.Flags().BoolVar(&wait, "wait", false, "wait until it is done")
	}
	return cmd
}

// completeFlag adds --complete, and --finish, its name of earlier versions.
func completeFlag(cmd *cobra.Command, complete *bool, help string) {
	for _, name := range []string{"complete", "finish"} {
		cmd.Flags().BoolVar(complete, name, false, help)
	}
	cmd.Flags().Lookup("finish").Hidden = true
}

func wishCommands(a *app) []*cobra.Command {
	commands := []*cobra.Command{
		wishCommand(a, "pause", "Pause a move", `Holds a workflow up until cleave resume. What was copied stays, changes are kept by the
source, where they take room. A cutover that has begun is not interrupted.`, (*api.Client).Pause),
		wishCommand(a, "resume", "Resume a paused move, or change its bounds", `Lets a workflow go on that cleave pause holds up. The flags change its bounds, also while it is
at work: it goes on by them at once.`, (*api.Client).Resume),
		wishCommand(a, "cancel", "Cancel a move before its cutover", `Ends a workflow before its cutover and removes all that was made for it: no trace is left.
After the cutover it is refused; see cleave reverse.`, (*api.Client).Cancel),
		reverseCommand(a, "reverse"), completeCommand(a, "complete"),
	}
	// The names of earlier versions.
	for _, c := range []*cobra.Command{reverseCommand(a, "rollback"), completeCommand(a, "finish")} {
		c.Hidden = true
		commands = append(commands, c)
	}
	return commands
}

func reverseCommand(a *app, name string) *cobra.Command {
	return wishCommand(a, name, "Make the old owner of a move the owner again", `Makes the old owner the owner again, while statements go on and with every write that the
new one took. Before the cutover it is the same as cleave cancel. It is refused after cleave
complete, and of a move with --keep 0.`, (*api.Client).Reverse)
}

func completeCommand(a *app, name string) *cobra.Command {
	return wishCommand(a, name, "Delete the source rows of a finished move; it can no longer be reversed", `Ends reverse replication and deletes the rows on the old owner: the move can no longer be
reversed. Asked for before the cutover, this happens at the cutover.`, (*api.Client).Complete)
}
