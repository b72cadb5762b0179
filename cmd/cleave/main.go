package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/cleavedb/cleave/internal/localpg"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/shardmap"
)

// version is set by the build (see the Makefile).
var version string

// The exit codes.
const (
	exitOK     = 0 // done
	exitFailed = 1 // understood, but it failed; or doctor found an error
	exitUsage  = 2 // the command line or the configuration is wrong; nothing was done
)

// process is what a command has of its surroundings.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            []string
	signals        <-chan os.Signal // for `up` and `router`; nil takes the process's own
}

func main() {
	p := &process{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, env: os.Environ()}
	os.Exit(run(context.Background(), p, os.Args[1:]))
}

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
