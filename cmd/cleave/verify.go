package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
)

func (a *app) verifyCommand() *cobra.Command {
	var req admin.VerifyRequest
	var dry bool
	cmd := &cobra.Command{
		Use:   "verify [TABLE]",
		Short: "Compare where rows are with where the map says",
		Long: `Reads all rows of the sharded tables, on every shard, and counts those whose shard key
the shard does not own. Strangers are the other copy of a move that is under way or can be
rolled back, and nobody sees them; orphans should not be there, and statements over several shards
do see them. Statements go on meanwhile. Each table is done before the next one; --after goes on where
somebody stopped.

With --repair an orphan that its owner has as well is deleted, and one that the owner has
not is moved there, with an ordinary INSERT. An orphan that differs from the owner's row
with the same primary key stays as it is. --dry-run says what each orphan is, as without
--repair.

The exit code is 1 if there are orphans that were not repaired, or a shard could not be asked.`,
		Example: `  cleave verify
  cleave verify orders --repair
  cleave verify --keyspace hash_bigint --after public.orders --json`,
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
			tables, err := c.Tables(cmd.Context())
			if err != nil {
				return err
			}
			// Table by table, so that what is done is printed.
			all := []admin.VerifyResult{}
			for _, name := range verifiedTables(tables, req.Table) {
				one := req
				one.Table = name
				found, err := c.Verify(cmd.Context(), one)
				if err != nil {
					return err
				}
				for i := range found {
					if !a.json {
						printVerified(a.stdout, &found[i])
					}
				}
				all = append(all, found...)
			}
			if a.json {
				if err := a.printJSON(all); err != nil {
					return err
				}
			} else if _, err := fmt.Fprintln(a.stdout, admin.VerifySummary(all)); err != nil {
				return err
			}
			for i := range all {
				if all[i].Orphans > all[i].Repaired || all[i].Error != "" {
					return reportedError{}
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&req.Keyspace, "keyspace", "", "tables of this keyspace only")
	cmd.Flags().StringVar(&req.Shard, "shard", "", "this shard only")
	cmd.Flags().StringVar(&req.After, "after", "", "tables after this one only, in the order of their names")
	cmd.Flags().BoolVar(&req.Repair, "repair", false, "bring orphans home")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "repair nothing")
	return cmd
}

// verifiedTables are the names of the sharded tables, in order; or the one that is given.
func verifiedTables(tables []admin.TableInfo, only string) []string {
	if only != "" {
		return []string{only}
	}
	var out []string
	for _, t := range tables {
		if t.Kind == "sharded" {
			out = append(out, `"`+strings.ReplaceAll(t.Schema, `"`, `""`)+`"."`+strings.ReplaceAll(t.Name, `"`, `""`)+`"`)
		}
	}
	slices.Sort(out)
	return out
}

func printVerified(out io.Writer, v *admin.VerifyResult) {
	if v.Error != "" {
		fmt.Fprintf(out, "%s on %s: %s\n", printable(v.Table), v.Shard, printable(v.Error))
		return
	}
	fmt.Fprintf(out, "%s on %s: %d rows, checksum %s", printable(v.Table), v.Shard, v.Rows, v.Checksum)
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
		fmt.Fprintf(out, "  key %s: %s", printable(strings.Join(s.Key, ", ")), s.Is)
		if s.Owner != "" {
			fmt.Fprintf(out, ", its owner is %s", s.Owner)
		}
		fmt.Fprintln(out)
	}
	if v.Problem != "" {
		fmt.Fprintf(out, "  %s\n", printable(v.Problem))
	}
}
