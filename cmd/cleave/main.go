package main

import (
	"context"
	"io"
	"os"
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
