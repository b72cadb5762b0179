package e2e

import "github.com/cleavedb/cleave/sqlstate"

// codeOf returns the SQLSTATE of an error that came from an engine directly.
func codeOf(err error) string { return string(sqlstate.CodeOf(err)) }
