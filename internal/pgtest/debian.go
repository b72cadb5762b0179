package pgtest

import (
	"os/exec"
	"testing"
)

// Debian makes sure that packages of Debian are installed.
func Debian(tb testing.TB, packages ...string) {
	tb.Helper()
	for _, pkg := range packages {
		if exec.Command("dpkg", "--status", pkg).Run() != nil {
			installDebian(tb, pkg)
		}
	}
}
