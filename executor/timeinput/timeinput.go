// Package timeinput asks a shard which literals and parameters of a statement are special date/time inputs ('now',
// 'today', 'tomorrow', 'yesterday'), and what they say. PostgreSQL reads them while it analyses a statement, as the time
// of the transaction; over several shards each would read them as its own. docs/design/parse-analysis.md.
package timeinput

import (
	"errors"
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// Server is a conversation with a shard.
type Server struct {
	Conn *executor.Conn
	// Exec runs a Query on it. Its errors are the caller's.
	Exec func(sql string) (*engine.Result, error)
	// Block: a transaction is open. Errors of a question do not end it.
	Block bool
	// Clock: the shard reads special inputs itself. For others see clockless.go.
	Clock bool
}

// NoTimes are the categories of types that read no times: pg_type.typcategory of enumerations, strings, numbers and others.
const NoTimes = "BEGINSTUVX"

// Types are the types that the literals of a statement have, by the parameter's number in t.Ask from t.Params+1: "" for one
// that reads no times. oids are the types that the client gave parameters.
//
// Errors: the shard's, of a text that is not the client's.
func (s *Server) Types(t *planner.TimeInputs, oids []uint32) ([]string, error) {
	switch {
	case t.Ask == "":
		return nil, sqlstate.New(sqlstate.InternalError, "the statement cannot be printed")
	case !s.Clock:
		return s.described(t, oids)
	}
	// What nothing gives a type (concat($1)) is a text where it is a literal, and an error where it is a parameter.
	texts := map[int]bool{}
	for {
		types, err := s.prepared(t, oids, texts)
		var said *sqlstate.Error
		if !errors.As(err, &said) || said.Code != sqlstate.IndeterminateDatatype || len(texts) == textsMax {
			return types, err
		}
		n := parameterIn(said.Message)
		if n <= t.Params || texts[n] {
			return nil, err
		}
		texts[n] = true
	}
}

// textsMax bounds how often a shard is asked again.
const textsMax = 100

// parameterIn is the number of the parameter that an error's message names, in any language; 0 if there is none.
func parameterIn(message string) int {
	_, rest, _ := strings.Cut(message, "$")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(rest[:end])
	if err != nil {
		return 0
	}
	return n
}

// prepared is Types, texts being the parameters that are texts.
func (s *Server) prepared(t *planner.TimeInputs, oids []uint32, texts map[int]bool) ([]string, error) {
	given := make([]uint32, t.Params)
	copy(given, oids)
	for n := range texts {
		for len(given) < n {
			given = append(given, 0)
		}
		given[n-1] = text
	}
	declared, err := s.declared(given)
	if err != nil {
		return nil, err
	}
	const name = "cleave_inputs"
	rows, err := s.ask("PREPARE " + name + declared + " AS " + t.Ask +
		"; SELECT CASE WHEN pg_catalog.strpos('" + NoTimes + "', t.typcategory::pg_catalog.text) = 0 THEN pg_catalog.format_type(t.oid, NULL) END" +
		" FROM pg_catalog.pg_prepared_statements s, pg_catalog.unnest(s.parameter_types) WITH ORDINALITY u (oid, n), pg_catalog.pg_type t" +
		" WHERE s.name = '" + name + "' AND t.oid = u.oid::pg_catalog.oid AND n > " + strconv.Itoa(t.Params) + " ORDER BY n" +
		"; DEALLOCATE " + name)
	if err != nil {
		return nil, err
	}
	types := make([]string, len(rows.Rows))
	for i, row := range rows.Rows {
		types[i] = row[0].String
	}
	return types, nil
}

// declared is the list of types of a PREPARE, "" if there is none.
func (s *Server) declared(oids []uint32) (string, error) {
	own, err := s.Conn.OIDs(oids, true)
	if err != nil || len(own) == 0 {
		return "", err
	}
	var names []string
	for _, oid := range own {
		if oid == 0 {
			oid = unknown
		}
		names = append(names, "pg_catalog.format_type("+strconv.FormatUint(uint64(oid), 10)+", NULL)")
	}
	res, err := s.Exec("SELECT pg_catalog.concat_ws(', ', " + strings.Join(names, ", ") + ")")
	if err != nil {
		return "", err
	}
	return " (" + res.Rows[0][0].String + ")", nil
}

const (
	text    = 25
	unknown = 705
)

// Named are the names of types, "" for those that read no times.
func (s *Server) Named(oids []uint32) ([]string, error) {
	own, err := s.Conn.OIDs(oids, true)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, oid := range own {
		list = append(list, "(SELECT CASE WHEN pg_catalog.strpos('"+NoTimes+"', t.typcategory::pg_catalog.text) = 0 THEN pg_catalog.format_type(t.oid, NULL) END"+
			" FROM pg_catalog.pg_type t WHERE t.oid = "+strconv.FormatUint(uint64(oid), 10)+")")
	}
	res, err := s.Exec("SELECT " + strings.Join(list, ", "))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(oids))
	for i, v := range res.Rows[0] {
		names[i] = v.String
	}
	return names, nil
}

// valuesAtOnce bounds the columns of a question: PostgreSQL takes 1,664.
const valuesAtOnce = 1000

// Values are what texts say in the conversation's transaction, in a form that every DateStyle and TimeZone reads as the
// same; "" for one that is left to the shards. now is the time as a literal, for shards that cannot tell it.
//
// Errors: the shard's, for a text that is no value of its type.
func (s *Server) Values(list []planner.TimeInput, now string) (values []string, err error) {
	if !s.Clock {
		return s.computed(list, now)
	}
	for from := 0; from < len(list); from += valuesAtOnce {
		var columns []string
		for _, in := range list[from:min(from+valuesAtOnce, len(list))] {
			columns = append(columns, "("+executor.QuoteLiteral(in.Text)+"::"+in.Type+")::pg_catalog.text")
		}
		// The order of day and month stays that of the session.
		res, err := s.ask("SET LOCAL DateStyle = ISO; SELECT " + strings.Join(columns, ", "))
		if err != nil {
			return nil, err
		}
		for _, v := range res.Rows[0] {
			values = append(values, v.String)
		}
	}
	return values, nil
}

// Read is a statement's text with values in the places of its special inputs. A text that the shard refuses stays as it is:
// the shard will say why, with the place. now is that of Values.
//
// Errors: 0A000 if a statement that the shard takes cannot be asked about.
func (s *Server) Read(t *planner.TimeInputs, sql string, oids []uint32, now string) (string, error) {
	types, err := s.Types(t, oids)
	if err != nil {
		if !About(err) {
			return "", err
		}
		if s.refuses(t, sql, oids) {
			return sql, nil
		}
		return "", Refuse(t, err)
	}
	list, at := t.Inputs(types)
	values, err := s.Values(list, now)
	if About(err) {
		return sql, nil
	}
	if err != nil || len(list) == 0 {
		return sql, err
	}
	return t.With(sql, at, values), nil
}

// refuses reports whether the shard does not take the statement itself.
func (s *Server) refuses(t *planner.TimeInputs, sql string, oids []uint32) bool {
	if !s.Clock {
		return true // it knows what it does not know
	}
	declared, err := s.declared(oids[:min(len(oids), t.Params)])
	if err == nil {
		_, err = s.ask("PREPARE cleave_inputs" + declared + " AS " + sql + "\n; DEALLOCATE cleave_inputs")
	}
	return err != nil
}

// About reports whether an error is a shard's answer about a text: its syntax, its names and types, or its values.
func About(err error) bool {
	var said *sqlstate.Error
	if !errors.As(err, &said) {
		return false
	}
	switch class := string(said.Code)[:min(2, len(said.Code))]; class {
	case "42", "22", "0A":
		return true
	}
	return false
}

// Refuse is the refusal of a statement whose literals have no types to ask for.
func Refuse(t *planner.TimeInputs, err error) error {
	literal := executor.QuoteLiteral(t.Literals[0].Text)
	e := sqlstate.Refusal("CLV-0630", "the text %s may be a special date/time input, and PostgreSQL cannot be asked whether it is", literal).
		WithHint("Write now() or current_date. If it is no time, cast it to text.")
	e.Err = err
	return e
}

// ask runs a question that leaves nothing behind.
func (s *Server) ask(sql string) (*engine.Result, error) {
	if !s.Block {
		return s.Exec(sql)
	}
	const back = "ROLLBACK TO SAVEPOINT cleave_inputs; RELEASE SAVEPOINT cleave_inputs"
	res, err := s.Exec("SAVEPOINT cleave_inputs; " + sql + "; " + back)
	var said *sqlstate.Error
	if errors.As(err, &said) && !s.Conn.Broken() {
		if _, failed := s.Exec(back); failed != nil {
			return nil, failed
		}
	}
	return res, err
}
