package planner

import "github.com/cleavedb/cleave/internal/sqlguard"

// sourceText is the text of the statement: its tokens, and where in it stands what the tree has.
type sourceText struct {
	sql  string
	toks []sqlguard.Token // see tokens
	// counted is up to where position has counted the characters of sql.
	counted struct{ bytes, runes int }
}
