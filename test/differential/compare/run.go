package compare

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Statement is what is run.
type Statement struct {
	SQL string
	// Mode is how; Params are for the extended modes only, nil is NULL.
	Mode   Mode
	Params []*string
	// ParamTypes are the OIDs that the client declares; missing or 0: left open.
	ParamTypes []uint32
	// Data is what COPY ... FROM STDIN reads.
	Data string
}

// Mode is a way to run a statement.
type Mode uint8

const (
	// Simple is one Query message, results in text.
	Simple Mode = iota
	// Text is the extended protocol with parameters and results in text.
	Text
	// Binary is the extended protocol with parameters and results in binary.
	Binary
)

// String is the mode's name.
func (m Mode) String() string { return [...]string{"simple", "text", "binary"}[m] }

// Session is one connection to a router or a database.
type Session struct {
	Conn  *pgconn.PgConn
	home  string // what it was opened with
	url   string
	sets  []string
	types map[uint32]string
	help  Help
	said  []string // the notices of the statement that runs
}

// Help is what a session needs beside its connection.
type Help struct {
	// Encoder is a connection to a plain database, used for nothing else: it
	// turns parameters into their binary form.
	Encoder *Session
	// TypeName names a type of the user's; nil: the connection's own catalogue does.
	TypeName func(oid uint32) (string, error)
}

// Open connects.
func Open(ctx context.Context, url string, help Help) (*Session, error) {
	s := &Session{home: url, url: url, types: map[uint32]string{}, help: help}
	return s, s.connect(ctx)
}

func (s *Session) connect(ctx context.Context) (err error) {
	limit, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	config, err := pgconn.ParseConfig(s.url)
	if err != nil {
		return err
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { s.said = append(s.said, n.Severity+" "+n.Code+" "+n.Message) }
	if s.Conn, err = pgconn.ConnectConfig(limit, config); err != nil {
		return err
	}
	for _, sql := range s.sets {
		if err := s.Conn.Exec(limit, sql).Close(); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Again opens a closed session with another URL, of the same database, and runs statements first; so does every
// connection that is made after a loss.
func (s *Session) Again(ctx context.Context, url string, sets []string) error {
	s.url, s.sets = url, sets
	return s.connect(ctx)
}

// Settle gives the session the settings that it began with: those that a test has set are gone.
func (s *Session) Settle(ctx context.Context) error {
	for _, sql := range append([]string{"RESET ALL"}, s.sets...) {
		if _, err := s.Conn.Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}

// Home is the URL that it was opened with.
func (s *Session) Home() string { return s.home }

// Move says where it connects to from now on.
func (s *Session) Move(home string) { s.home, s.url = home, home }

// URL is where it connects to.
func (s *Session) URL() string { return s.url }

// Close ends the connection.
func (s *Session) Close() error {
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return s.Conn.Close(limit)
}

// Outcome is what a statement gave.
type Outcome struct {
	Results []Result
	Err     *pgconn.PgError
	// Notices are severity, code and words of each.
	Notices []string
	// Lost is why there is no outcome: the connection broke, or no answer came.
	Lost error
}

// Result is one command's.
type Result struct {
	Columns []Column
	Rows    [][]string // NULL is [Null]
	Tag     string
}

// Null stands for NULL in a row.
const Null = "\x00NULL"

// Column is a result column.
type Column struct {
	Name     string
	Type     string // the OID, or the name of a type of the user's
	Modifier int32
	Format   int16
}

// Refused reports whether the outcome is a refusal.
func (o *Outcome) Refused() bool { return o.Err != nil && o.Err.Code == "0A000" }

// firstUserOID is where the OIDs of what users make begin.
const firstUserOID = 16384

// patience is how long a statement may take on a machine that is busy.
const patience = 90 * time.Second

// Run runs a statement. When the connection is lost it is made anew.
func (s *Session) Run(ctx context.Context, st Statement) *Outcome {
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out := &Outcome{}
	s.said = nil
	err := s.run(limit, st, out)
	out.Notices = s.said
	if err == nil {
		return out
	}
	if errors.As(err, &out.Err) && !s.Conn.IsClosed() {
		return out
	}
	out.Lost = err
	if s.Conn.IsClosed() {
		if err := s.connect(ctx); err != nil {
			out.Lost = errors.Join(out.Lost, err)
		}
	}
	return out
}

func (s *Session) run(ctx context.Context, st Statement, out *Outcome) error {
	word := strings.ToUpper(strings.TrimSpace(st.SQL))
	switch {
	case strings.HasPrefix(word, "COPY") && (strings.Contains(word, "FROM STDIN") || strings.Contains(word, "FROM STDOUT")):
		tag, err := s.Conn.CopyFrom(ctx, strings.NewReader(st.Data), st.SQL)
		out.Results = []Result{{Tag: tag.String()}}
		return err
	case strings.HasPrefix(word, "COPY") && strings.Contains(word, "TO STDOUT"):
		var b bytes.Buffer
		tag, err := s.Conn.CopyTo(ctx, &b, st.SQL)
		r := Result{Tag: tag.String()}
		for line := range strings.Lines(b.String()) {
			r.Rows = append(r.Rows, []string{line})
		}
		out.Results = []Result{r}
		return err
	}
	if st.Mode == Simple {
		return s.simple(ctx, st.SQL, out)
	}
	return s.extended(ctx, st, out)
}

func (s *Session) simple(ctx context.Context, sql string, out *Outcome) error {
	mr := s.Conn.Exec(ctx, sql)
	for mr.NextResult() {
		if err := s.take(mr.ResultReader(), out); err != nil {
			_ = mr.Close() // it says the same
			return err
		}
	}
	if err := mr.Close(); err != nil {
		return err
	}
	return s.name(ctx, out)
}

func (s *Session) extended(ctx context.Context, st Statement, out *Outcome) error {
	desc, err := s.Conn.Prepare(ctx, "", st.SQL, st.ParamTypes)
	if err != nil {
		return err
	}
	params, formats, results := make([][]byte, len(st.Params)), []int16(nil), []int16{0}
	for i, p := range st.Params {
		if p != nil {
			params[i] = []byte(*p)
		}
	}
	if st.Mode == Binary {
		results = []int16{1}
		for _, f := range desc.Fields {
			// Values of the user's types may hold OIDs, which differ by database.
			if f.DataTypeOID >= firstUserOID || f.DataTypeOID == recordOID || f.DataTypeOID == recordArrayOID || f.DataTypeOID == regclassOID || f.DataTypeOID == regtypeOID {
				results = []int16{0}
			}
		}
		if len(st.Params) == len(desc.ParamOIDs) {
			if params, formats, err = encode(ctx, s.help.Encoder.Conn, st.Params, desc.ParamOIDs); err != nil {
				return err
			}
		}
	}
	rr := s.Conn.ExecPrepared(ctx, "", params, formats, results)
	if err := s.take(rr, out); err != nil {
		return err
	}
	return s.name(ctx, out)
}

const (
	recordOID      = 2249
	recordArrayOID = 2287
	regclassOID    = 2205
	regtypeOID     = 2206
)

func (s *Session) take(rr *pgconn.ResultReader, out *Outcome) error {
	var r Result
	for _, f := range rr.FieldDescriptions() {
		r.Columns = append(r.Columns, Column{Name: f.Name, Type: fmt.Sprint(f.DataTypeOID), Modifier: f.TypeModifier, Format: f.Format})
	}
	for rr.NextRow() {
		values := rr.Values()
		row := make([]string, len(values))
		for i, v := range values {
			row[i] = string(v)
			if v == nil {
				row[i] = Null
			}
		}
		r.Rows = append(r.Rows, row)
	}
	tag, err := rr.Close()
	r.Tag = tag.String()
	out.Results = append(out.Results, r)
	return err
}

// name replaces the OIDs of the user's types by their names.
func (s *Session) name(ctx context.Context, out *Outcome) error {
	for _, r := range out.Results {
		for i := range r.Columns {
			var oid uint32
			if _, err := fmt.Sscan(r.Columns[i].Type, &oid); err != nil || oid < firstUserOID {
				continue
			}
			name, ok := s.types[oid]
			if !ok {
				var err error
				if name, err = s.typeName(ctx, oid); err != nil {
					return fmt.Errorf("the name of type %d: %w", oid, err)
				}
				s.types[oid] = name
			}
			r.Columns[i].Type = name
		}
	}
	return nil
}

// TypeQuery, with an OID after it, names a type with its schema, whatever the
// search_path is; the schema of temporary tables, which is each session's own, is
// left out.
const TypeQuery = "SELECT CASE WHEN n.nspname LIKE 'pg_temp%' THEN '' ELSE n.nspname || '.' END || t.typname" +
	" FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = "

func (s *Session) typeName(ctx context.Context, oid uint32) (string, error) {
	if s.help.TypeName != nil {
		return s.help.TypeName(oid)
	}
	if s.Conn.TxStatus() == 'E' {
		return "", nil
	}
	res := s.Conn.ExecParams(ctx, TypeQuery+fmt.Sprint(oid), nil, nil, nil, nil).Read()
	if res.Err != nil || len(res.Rows) == 0 {
		return fmt.Sprint(oid), res.Err
	}
	return string(res.Rows[0][0]), nil
}

// Forget drops what is remembered of types: a test is about to make new ones.
func (s *Session) Forget() { clear(s.types) }

// encode turns texts into the binary form of their types, where they are right
// for the type; the others go as text, so that the server says what is wrong.
func encode(ctx context.Context, conn *pgconn.PgConn, texts []*string, types []uint32) (params [][]byte, formats []int16, err error) {
	for i, p := range texts {
		if p == nil {
			params, formats = append(params, nil), append(formats, 1)
			continue
		}
		if types[i] < firstUserOID {
			res := conn.ExecParams(ctx, "SELECT $1", [][]byte{[]byte(*p)}, []uint32{types[i]}, nil, []int16{1}).Read()
			if res.Err == nil {
				params, formats = append(params, res.Rows[0][0]), append(formats, 1)
				continue
			}
			var pe *pgconn.PgError
			if !errors.As(res.Err, &pe) {
				return nil, nil, res.Err
			}
		}
		params, formats = append(params, []byte(*p)), append(formats, 0)
	}
	return params, formats, nil
}

// Quote writes a name as SQL does.
func Quote(name string) string { return pgx.Identifier{name}.Sanitize() }
