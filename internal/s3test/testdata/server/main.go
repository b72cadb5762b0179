// Command server is the S3 server that the tests run: versitygw over a folder. It ends with its standard input.
//
//	server ADDRESS FOLDER ACCESS-KEY SECRET-KEY
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/debuglogger"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("usage: server ADDRESS FOLDER ACCESS-KEY SECRET-KEY")
	}
	data, attributes := filepath.Join(args[2], "data"), filepath.Join(args[2], "attributes")
	for _, dir := range []string{data, attributes} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	// Attributes in files of their own work on each file system.
	store, err := meta.NewSideCar(attributes)
	if err != nil {
		return err
	}
	backend, err := posix.New(data, store, posix.PosixOpts{SideCarDir: attributes, ForceNoTmpFile: true})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), backend, &embedgw.Config{
		RootUserAccess: args[3], RootUserSecret: args[4], Region: "test-1",
		Ports: []string{args[1]}, MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 10000,
		AdminMaxConnections: 10, AdminMaxRequests: 10, IAMDir: "", KeepAlive: true, Quiet: true, HealthPath: "/health",
		LogLevel: debuglogger.LevelSilent,
	})
}
