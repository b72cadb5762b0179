package sqltext

import (
	"errors"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"github.com/pganalyze/pg_query_go/v6/parser"

	"github.com/cleavedb/cleave/internal/sqlguard"
	"github.com/cleavedb/cleave/sqlstate"
)

// Parser guards and parses texts.
type Parser struct {
	Limits  sqlguard.Limits
	Stopped func() error // an error ends the work, of which nobody waits for the result; nil: never
}

// GoesOn is the error of a planning that nobody waits for.
func (p Parser) GoesOn() error {
	if p.Stopped == nil {
		return nil
	}
	return p.Stopped()
}

// Check is the guard's error of a text.
func (p Parser) Check(sql string) error { return sqlguard.Check(sql, p.Limits) }

// Parse guards and parses a text. Errors are the parser's own, with position.
func (p Parser) Parse(sql string) (*pg.ParseResult, error) {
	if err := p.GoesOn(); err != nil {
		return nil, err
	}
	if err := p.Check(sql); err != nil {
		return nil, err
	}
	tree, err := pg.Parse(sql)
	if err != nil {
		return nil, parseError(sql, err)
	}
	return tree, nil
}

func parseError(sql string, err error) error {
	var pe *parser.Error
	if !errors.As(err, &pe) {
		// The decoder of the tree gives up at 10,000 levels.
		return sqlstate.Wrap(err, sqlstate.StatementTooComplex, "the statement is too complex to be read")
	}
	if strings.Contains(pe.Message, "memory exhausted") {
		return sqlstate.New(sqlstate.StatementTooComplex, "%s", pe.Message)
	}
	code := sqlstate.SyntaxError
	if pe.Message == "invalid Unicode escape" && !strings.Contains(strings.ToUpper(sql), "U&") {
		code = sqlstate.InvalidEscapeSequence // of E'...'; U&'...' has its own
	}
	if strings.HasPrefix(pe.Message, "invalid byte sequence for encoding") {
		code = sqlstate.CharacterNotInRepertoire // of E'...', whose escapes are bytes
	}
	for _, words := range unsupported {
		if strings.Contains(pe.Message, words) {
			code = sqlstate.FeatureNotSupported
		}
	}
	return sqlstate.New(code, "%s", pe.Message).At(pe.Cursorpos)
}

// unsupported are what the grammar's own errors of class 0A000 say.
var unsupported = []string{
	"CREATE SCHEMA IF NOT EXISTS cannot include schema elements", "constraints cannot be marked", "not yet implemented", "is no longer supported",
	"is no longer required", "CREATE OR REPLACE CONSTRAINT TRIGGER is not supported", "aggregates cannot have output arguments",
	"CHECK OPTION not supported on recursive views", "current database cannot be changed", "is only supported for ON DELETE actions",
	"an ordered-set aggregate with a VARIADIC direct argument",
}
