package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/sqlstate"
)

// healthMax bounds the question, so that a probe never hangs.
const healthMax = 3 * time.Second

func healthCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Check that a router is ready",
		Long: `Asks the admin API whether the router takes statements now: it is up, does not drain,
and has its lease on the directory. The exit code is 0 if so, else 1. Meant for the
health check of a container, which has no curl.`,
		Example: `  cleave health --admin 127.0.0.1:6480`,
		Args:    args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			client, err := api.NewClient(adminURL(&cfg.Config))
			if err != nil {
				return err
			}
			// The router's certificate need not have the name under which its own machine
			// asks, and the answer is no secret: no token is sent.
			client.WithoutVerification()
			defer client.Close()
			ctx, stop := context.WithTimeout(cmd.Context(), healthMax)
			defer stop()
			h, err := client.Health(ctx)
			if err != nil {
				return err
			}
			if !h.Ready {
				return sqlstate.New(sqlstate.CannotConnectNow, "the router is not ready: %s", h.Reason)
			}
			if a.json {
				return a.printJSON(h)
			}
			_, err = fmt.Fprintln(a.stdout, "ready")
			return err
		},
	}
}
