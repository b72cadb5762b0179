package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
)

// versionText returns what this binary is.
func versionText() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "development"
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Prints the version of this binary, of the formats that it reads and writes, and of Go.",
		Example: "  cleave version --json",
		Args:    args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(map[string]any{
					"version": versionText(), "data_format": wiring.DataFormat, "map_format": shardmap.Format,
					"postgres_min": localpg.MajorMin, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(a.stdout, "cleave %s (data format %d, map format %d, PostgreSQL %d or later, %s %s/%s)\n",
				versionText(), wiring.DataFormat, shardmap.Format, localpg.MajorMin, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
