package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/admin/api"
	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/sqlstate"
)

func sessionsCommand(a *app) *cobra.Command {
	var router string
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions of clients; cancel or end one",
		Long: `Lists the sessions of clients at all routers, and at programs that use the Go client:
who it is, what it does, where, and since when. A router that does not answer is named
in a warning. The same as SELECT * FROM cleave.sessions.`,
		Example: `  cleave sessions
  cleave sessions --router 10.0.0.5:6432 --json`,
		Args: args(0, 0),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, _ []string) error {
			info, err := c.Sessions(cmd.Context(), admin.SessionsRequest{Router: router})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(info)
			}
			for _, s := range info.Silent {
				fmt.Fprintf(a.stderr, "warning: router %s: %s\n", terminal.Printable(s.Router), terminal.Printable(s.Reason))
			}
			return printList(a, info.Sessions, "no sessions", []string{"PID", "ROUTER", "USER", "APPLICATION", "CLIENT", "STATE", "SINCE", "SHARD"},
				func(s admin.SessionInfo) []string {
					return []string{strconv.FormatInt(s.PID, 10), s.Router, s.User, s.Application, s.Client, s.State, ago(s.Since), s.Shard}
				})
		}),
	}
	cmd.Flags().StringVar(&router, "router", "", "of this router only: its address, id or node number as cleave router list shows them")
	cmd.AddCommand(sessionCancelCommand(a), sessionTerminateCommand(a))
	return cmd
}

// ago is how long something lasts, in whole seconds.
func ago(since time.Time) string { return time.Since(since).Truncate(time.Second).String() }

func sessionNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return 0, sqlstate.New(sqlstate.InvalidParameterValue, "%q is no session's number", text).WithHint("the numbers: cleave sessions")
	}
	return n, nil
}

func sessionCancelCommand(a *app) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "cancel PID",
		Short: "Cancel the statement that a session runs",
		Long: `Cancels what a session runs, at whatever router: its client gets 57014, and the session
goes on. The same as SELECT pg_cancel_backend(PID).`,
		Example: `  cleave sessions cancel 2097153`,
		Args:    args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			pid, err := sessionNumber(given[0])
			if err != nil {
				return err
			}
			res, err := c.CancelSession(cmd.Context(), admin.SessionRequest{Meta: admin.Meta{By: actor(), DryRun: dryRun}, PID: pid})
			if err != nil {
				return err
			}
			return a.printSession(res, dryRun, "would be cancelled", "is cancelled")
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the session and change nothing")
	return cmd
}

func sessionTerminateCommand(a *app) *cobra.Command {
	var dryRun bool
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "terminate PID",
		Short: "End a session",
		Long: `Ends a session, at whatever router: its client gets 57P01, and its open transaction is
rolled back. The same as SELECT pg_terminate_backend(PID, timeout).`,
		Example: `  cleave sessions terminate 2097153 --dry-run
  cleave sessions terminate 2097153 --wait 10s`,
		Args: args(1, 1),
		RunE: a.withClient(func(cmd *cobra.Command, c *api.Client, given []string) error {
			pid, err := sessionNumber(given[0])
			if err != nil {
				return err
			}
			res, err := c.TerminateSession(cmd.Context(), admin.SessionRequest{Meta: admin.Meta{By: actor(), DryRun: dryRun}, PID: pid, Wait: wait.Seconds()})
			if err != nil {
				return err
			}
			if err := a.printSession(res, dryRun, "would be ended", "is ended"); err != nil || dryRun || res.Done {
				return err
			}
			return sqlstate.New(sqlstate.QueryCanceled, "session %d was told to end and has not ended within %v", pid, wait).WithHint("look again: cleave sessions")
		}),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show the session and change nothing")
	cmd.Flags().DurationVar(&wait, "wait", 5*time.Second, "wait so long until it has ended; 0 does not wait")
	return cmd
}

func (a *app) printSession(res *admin.SessionResult, dryRun bool, would, done string) error {
	if a.json {
		return a.printJSON(res)
	}
	s := &res.Session
	if dryRun {
		done = would
	}
	given := func(text string) string { // a table's empty cell, within a sentence
		if text == "" {
			return "-"
		}
		return terminal.Printable(text)
	}
	_, err := fmt.Fprintf(a.stdout, "session %d %s: user %s, application %s, client %s, router %s, %s for %s\n", s.PID, done,
		terminal.Printable(s.User), given(s.Application), given(s.Client), terminal.Printable(s.Router), s.State, ago(s.Since))
	return err
}
