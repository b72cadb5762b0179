package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
)

func verifyCommand(a *app) *cobra.Command {
	var req admin.VerifyRequest
	var dry bool
	cmd := &cobra.Command{
		Use:   "verify [TABLE]",
		Short: "Check that each row is on the shard that owns it",
		Long: `Reads all rows of the sharded tables, on every shard, and counts those whose shard key
the shard does not own. Strangers are the other copy of a move that is under way or can be
reversed, and nobody sees them; orphans should not be there, and statements over several shards
do see them. Statements go on meanwhile. Each table is done before the next one, a large one in pieces, and
how far it has come is printed. What was interrupted goes on with the piece it was at when it is asked for
with the same --id, within a week; --after looks at the tables after one only.

With --repair an orphan that its owner has as well is deleted, and one that the owner has
not is moved there, with an ordinary INSERT. An orphan that differs from the owner's row
with the same primary key stays as it is. --dry-run says what each orphan is, as without
--repair.

The exit code is 1 if there are orphans that were not repaired, or a shard could not be asked.`,
		Example: `  cleave verify
  cleave verify orders --repair
  cleave verify --keyspace hash_bigint --id nightly --json`,
		Args: args(0, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if len(given) == 1 {
				req.Table = given[0]
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			req.By, req.Why, req.DryRun = actor(), "cleave verify", dry
			if req.ID == "" {
				req.ID = "verify-" + strings.ToLower(rand.Text()[:8])
			}
			all, so, err := a.verify(cmd.Context(), c, req)
			if err != nil {
				return err
			}
			if a.json {
				if err := a.printJSON(all); err != nil {
					return err
				}
			} else if _, err := fmt.Fprintln(a.stdout, so.Summary()); err != nil {
				return err
			}
			if so.Orphans > so.Repaired || so.Errors > 0 {
				return reportedError{}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&req.Keyspace, "keyspace", "", "tables of this keyspace only")
	cmd.Flags().StringVar(&req.Shard, "shard", "", "this shard only")
	cmd.Flags().StringVar(&req.After, "after", "", "tables after this one only, in the order of their names")
	cmd.Flags().BoolVar(&req.Repair, "repair", false, "bring orphans home")
	cmd.Flags().StringVar(&req.ID, "id", "", "go on under this id where it was interrupted, or begin")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "repair nothing")
	return cmd
}

// verify goes on with a verification until it has ended, and returns what it found in its tables, and in all.
func (a *app) verify(ctx context.Context, c admin.API, req admin.VerifyRequest) ([]admin.VerifyResult, *admin.VerifyProgress, error) {
	all := []admin.VerifyResult{}
	began, first := time.Now(), int64(-1) // what was looked at when we began, about
	for said := time.Now(); ; {
		so, err := c.VerifyPieces(ctx, req)
		if err != nil {
			if first >= 0 {
				fmt.Fprintf(a.stderr, "to go on where it was: cleave verify --id %s, with the same tables and options\n", req.ID)
			}
			return nil, nil, err
		}
		for i := range so.Found {
			if !a.json {
				printVerified(a.stdout, &so.Found[i])
			}
		}
		all = append(all, so.Found...)
		if so.Ended {
			return all, so, nil
		}
		if first < 0 {
			began, first = time.Now(), so.Bytes
		}
		if line := verifyLine(so, so.Bytes-first, time.Since(began)); time.Since(said) >= sayEvery {
			said = time.Now()
			fmt.Fprintln(a.stderr, line)
		}
	}
}

// sayEvery is how often a verification says how far it is.
const sayEvery = 2 * time.Second

// verifyLine is how far a verification is, of which so many bytes were looked at in a time.
func verifyLine(so *admin.VerifyProgress, bytes int64, took time.Duration) string {
	var b strings.Builder
	b.WriteString("verifying")
	if so.Pieces > 0 {
		fmt.Fprintf(&b, " %s, piece %d of %d;", terminal.Printable(so.Table), so.Piece, so.Pieces)
	}
	fmt.Fprintf(&b, " %d of %d tables, %d of about %d rows, %s of %s", so.Tables, so.TablesAll,
		so.Rows, max(so.Rows, so.RowsAll), byteText(so.Bytes), byteText(max(so.Bytes, so.BytesAll)))
	if rate := float64(bytes) / took.Seconds(); rate > 0 {
		left := time.Duration(float64(max(0, so.BytesAll-so.Bytes)) / rate * float64(time.Second))
		fmt.Fprintf(&b, ", %s/s, about %s left", byteText(int64(rate)), left.Round(time.Second))
	}
	return b.String()
}

func printVerified(out io.Writer, v *admin.VerifyResult) {
	if v.Error != "" {
		fmt.Fprintf(out, "%s on %s: %s\n", terminal.Printable(v.Table), v.Shard, terminal.Printable(v.Error))
		return
	}
	fmt.Fprintf(out, "%s on %s: %d rows, checksum %s", terminal.Printable(v.Table), v.Shard, v.Rows, v.Checksum)
	if v.Strangers > 0 {
		fmt.Fprintf(out, "; %d strangers, of moves", v.Strangers)
	}
	fmt.Fprintln(out)
	if v.Orphans == 0 {
		return
	}
	fmt.Fprintf(out, "  %d orphans: %d that their owners have too, %d misplaced, %d that differ from their owner's, %d without an owner; %d brought home\n",
		v.Orphans, v.Copies, v.Misplaced, v.Differing, v.Homeless, v.Repaired)
	for _, s := range v.Sample {
		fmt.Fprintf(out, "  key %s: %s", terminal.Printable(strings.Join(s.Key, ", ")), s.Is)
		if s.Owner != "" {
			fmt.Fprintf(out, ", its owner is %s", s.Owner)
		}
		fmt.Fprintln(out)
	}
	if v.Problem != "" {
		fmt.Fprintf(out, "  %s\n", terminal.Printable(v.Problem))
	}
}
