package main

import (
	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/config"
)

func configCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the settings as they are in force, and where each comes from",
		Long: `Reads the settings as "cleave up" would, from flags, environment and file, and
prints each with its source. Problems are reported all at once, with exit code 2.
RELOAD says whether a running process takes a new value from the file on SIGHUP
(kill -HUP); the others need a restart.`,
		Example: `  cleave config
  CLEAVE_LOG_LEVEL=debug cleave config --config /etc/cleave.yaml --json`,
		Args: args(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load(cmd)
			if err != nil {
				return err
			}
			return printList(a, cfg.Values(), "", []string{"SETTING", "VALUE", "SOURCE", "RELOAD", "MEANING"}, func(v config.Value) []string {
				reload := "restart"
				if v.Reload {
					reload = "SIGHUP"
				}
				return []string{v.Name, v.Value, string(v.Source), reload, v.Help}
			})
		},
	}
	for _, s := range config.Settings() {
		if s.Name != "admin" { // every command has it
			addSettings(cmd.Flags(), s.Name)
		}
	}
	return cmd
}
