package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
)

// constraintCommand keeps the rules about where keys may be.
func constraintCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "constraint",
		Short: "List, add and remove rules about where keys may be",
		Long: `Rules about where keys may be: residency (only on shards with these labels), isolation (on
shards that have nothing else) and anti-affinity (no two of these keys on one shard). They
are in the shard map. Every change of the map that would break one is refused, for every client:
a move, a pin, a drain, a new keyspace. The same as SELECT cleave.add_constraint(...),
cleave.remove_constraint(...) and SELECT * FROM cleave.constraints.`,
		Example: "  cleave constraint list",
		Args:    a.noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(constraintAddCommand(a), constraintListCommand(a), constraintRemoveCommand(a))
	return cmd
}

func constraintAddCommand(a *app) *cobra.Command {
	var ch change
	var req admin.ConstraintRequest
	var keys, labels []string
	cmd := &cobra.Command{
		Use:   "add NAME --kind KIND [--keyspace K [--key KEY... | --range LOW:HIGH]] [--label KEY=VALUE...]",
		Short: "Add a rule",
		Long: `Adds a rule. Without --key and --range it is about the keyspace as a whole; a residency
without --keyspace is about everything that is sharded. What breaks the rule already stays
where it is and is listed: cleave plan makes a plan that moves it first.`,
		Example: `  cleave constraint add eu-only --kind residency --keyspace customers --range 'eu..ev' --label region=eu
  cleave constraint add big-tenant --kind isolation --keyspace hash_bigint --key 42 --dry-run
  cleave constraint add apart --kind anti-affinity --keyspace hash_bigint --key 42 --key 43`,
		Args: args(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			req.Meta, req.Name = ch.meta(), given[0]
			if req.Kind == "" {
				return &usageError{errMissing("--kind", "residency, isolation or anti-affinity"), cmd}
			}
			for _, text := range keys {
				key, err := splitKey(text)
				if err != nil {
					return &usageError{fmt.Errorf("--key %w", err), cmd}
				}
				req.Keys = append(req.Keys, key)
			}
			if len(keys) > 0 && req.Range != "" {
				return &usageError{errors.New("give --key or --range, not both"), cmd}
			}
			for _, l := range labels {
				k, v, ok := strings.Cut(l, "=")
				if !ok {
					return &usageError{fmt.Errorf("--label %q is not key=value", l), cmd}
				}
				if req.Labels == nil {
					req.Labels = map[string]string{}
				}
				req.Labels[k] = v
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			defer c.Close()
			res, err := c.AddConstraint(cmd.Context(), req)
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		},
	}
	ch.flags(cmd)
	cmd.Flags().StringVar(&req.Kind, "kind", "", "residency, isolation or anti-affinity")
	cmd.Flags().StringVar(&req.Keyspace, "keyspace", "", "the keyspace (default, for a residency: all)")
	cmd.Flags().StringArrayVar(&keys, "key", nil, "a key that is meant, several columns with commas; can be repeated")
	cmd.Flags().StringVar(&req.Range, "range", "", "the positions that are meant, LOW:HIGH or LOW..HIGH")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "residency: a label that a shard must have, as key=value; can be repeated")
	return cmd
}

func constraintListCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the rules, and whether they are kept",
		Long:    `Lists the rules. One that was broken already when it was added says so until its keys are moved.`,
		Example: "  cleave constraint list",
		Args:    args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			list, err := c.Constraints(cmd.Context())
			if err != nil {
				return err
			}
			return printList(a, list, "no constraints", []string{"NAME", "KIND", "RULE", "KEPT"}, func(i admin.ConstraintInfo) []string {
				kept := "yes"
				if n := len(i.Broken); n > 0 {
					kept = fmt.Sprintf("no: %s", i.Broken[0])
				}
				return []string{i.Name, i.Kind, i.Text, kept}
			})
		}),
	}
}

func constraintRemoveCommand(a *app) *cobra.Command {
	var ch change
	cmd := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a rule",
		Long:    `Removes a rule from the map. Nothing is moved, and nothing that it kept apart comes together by itself.`,
		Example: "  cleave constraint remove big-tenant --dry-run",
		Args:    args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			res, err := c.RemoveConstraint(cmd.Context(), admin.ConstraintRequest{Meta: ch.meta(), Name: given[0]})
			if err != nil {
				return err
			}
			return a.printResult(res, res)
		}),
	}
	ch.flags(cmd)
	return cmd
}
