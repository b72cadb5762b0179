package sqlite

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"

	pg "github.com/pganalyze/pg_query_go/v6"
	"github.com/pganalyze/pg_query_go/v6/parser"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

type scriptStmt struct {
	raw  *pg.RawStmt
	text string
}

func malformed() error {
	return sqlstate.New(sqlstate.ProtocolViolation, "invalid message format")
}

// syntaxError turns the parser's error into PostgreSQL's.
func syntaxError(text string, err error) error {
	e := sqlstate.New(sqlstate.SyntaxError, "%s", err.Error())
	var pe *parser.Error
	if errors.As(err, &pe) && pe.Cursorpos > 0 {
		e.Position = min(pe.Cursorpos, utf8.RuneCountInString(text)+1)
	}
	if strings.Contains(e.Message, "must be no more than") || strings.Contains(e.Message, "out of range") {
		e.Code = sqlstate.SyntaxError
	}
	return e
}

func planKey(text string, oids []uint32, fixed bool) string {
	if len(oids) == 0 && fixed {
		return text
	}
	b := make([]byte, 0, len(text)+2+8*len(oids))
	b = append(b, text...)
	b = append(b, 0)
	for _, o := range oids {
		b = strconv.AppendUint(b, uint64(o), 10)
		b = append(b, ',')
	}
	return string(b)
}

func (c *Conn) fresh(p *plan) bool {
	return p.kind == controlPlan || p.settings == c.settings.version && c.cat != nil && p.generation == c.cat.generation
}

// planFor returns the plan of a text that holds one statement, or none.
func (c *Conn) planFor(text string, oids []uint32, fixed bool) (*plan, error) {
	key := planKey(text, oids, fixed)
	if p := c.plans.get(key); p != nil && c.fresh(p) {
		return p, nil
	}
	tree, err := syntaxTree(text)
	if err != nil {
		return nil, err
	}
	switch len(tree.Stmts) {
	case 0:
		return &plan{text: text, empty: true, kind: controlPlan}, nil
	case 1:
	default:
		return nil, sqlstate.New(sqlstate.SyntaxError, "cannot insert multiple commands into a prepared statement")
	}
	return c.planRaw(tree.Stmts[0], text, oids, fixed, key)
}

// planRaw translates one statement. The catalogue must be up to date, unless the
// statement needs none.
func (c *Conn) planRaw(raw *pg.RawStmt, text string, oids []uint32, fixed bool, key string) (*plan, error) {
	p, err := c.planControl(raw, text)
	if err != nil {
		return nil, err
	}
	if p == nil {
		if c.tx.block == txFailed {
			return nil, sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
		}
		if err := c.begin(false); err != nil {
			return nil, err
		}
		if e := raw.Stmt.GetExplainStmt(); e != nil {
			return c.planExplain(e, text, oids, fixed)
		}
		if p, err = c.planUtility(raw, text); err != nil {
			return nil, err
		}
	}
	if p != nil {
		for _, o := range oids {
			if o == 0 {
				o = oidText
			}
			p.params = append(p.params, o)
		}
		return p, nil
	}
	if p, err = c.translateStatement(raw, text, oids, fixed); err != nil {
		return nil, err
	}
	if key != "" && len(key) < 64<<10 {
		c.plans.put(key, p)
	}
	return p, nil
}

// exitsFailed reports the statements that a failed block accepts.
func (p *plan) exitsFailed() bool {
	if p.empty {
		return true
	}
	return p.kind == controlPlan && (p.tag == "COMMIT" || p.tag == "ROLLBACK" || p.tag == "PREPARE TRANSACTION")
}

func (c *Conn) simpleQuery(body []byte) error {
	text, rest, ok := wire.CutString(body)
	if !ok || len(rest) != 0 {
		return malformed()
	}
	if err := checkText(text); err != nil {
		return err
	}
	key := planKey(text, nil, true)
	if p := c.plans.get(key); p != nil && c.tx.block != txFailed {
		c.script = &script{plans: []*plan{p}, stmts: []scriptStmt{{text: text}}}
		return nil
	}
	tree, err := syntaxTree(text)
	if err != nil {
		return err
	}
	if len(tree.Stmts) == 0 {
		c.out = wire.AppendEmpty(c.out, wire.EmptyQueryResponse)
		c.ready()
		return nil
	}
	s := &script{multi: len(tree.Stmts) > 1}
	for _, raw := range tree.Stmts {
		s.stmts = append(s.stmts, scriptStmt{raw: raw, text: text})
	}
	c.script = s
	return nil
}

// runScript starts the next statement of a simple query, or ends it.
func (c *Conn) runScript() {
	s := c.script
	if s.next >= len(s.stmts) {
		c.script = nil
		if err := c.endImplicit(); err != nil {
			c.fail(err)
		}
		c.ready()
		return
	}
	st := s.stmts[s.next]
	s.next++
	var p *portal
	err := guarded(func() error {
		pl, err := c.scriptPlan(s, st)
		if err != nil {
			return err
		}
		p = &portal{plan: pl}
		if c.tx.block == txFailed && !pl.exitsFailed() {
			return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
		}
		if s.multi && c.tx.block == txNone {
			c.tx.implicit = true
		}
		if pl.kind != queryPlan {
			err = c.runUtility(p)
		} else {
			err = c.run(p)
		}
		if err != nil {
			return err
		}
		if p.plan.returns && p.copy == nil {
			c.out = appendRowDescription(c.out, p.plan.cols, func(int) int16 { return 0 })
		}
		c.active, c.activeN, c.simple = p, 0, true
		c.startTimer()
		return nil
	})
	if err != nil {
		c.simple = true
		if p == nil {
			p = &portal{plan: &plan{}}
		}
		c.active = nil
		c.endPortal(p)
		c.statementFailed(p, err)
	}
}

func (c *Conn) scriptPlan(s *script, st scriptStmt) (*plan, error) {
	if st.raw == nil {
		// Found in the cache: still fresh?
		if err := c.begin(false); err != nil {
			return nil, err
		}
		if c.fresh(s.plans[0]) {
			return s.plans[0], nil
		}
		return c.planFor(st.text, nil, true)
	}
	key := ""
	if !s.multi {
		key = planKey(st.text, nil, true)
	}
	return c.planRaw(st.raw, st.text, nil, true, key)
}

func (c *Conn) parse(body []byte) error {
	name, rest, ok := wire.CutString(body)
	if !ok {
		return malformed()
	}
	text, rest, ok := wire.CutString(rest)
	if !ok || len(rest) < 2 {
		return malformed()
	}
	n := int(binary.BigEndian.Uint16(rest))
	rest = rest[2:]
	if len(rest) != 4*n {
		return malformed()
	}
	oids := make([]uint32, n)
	for i := range oids {
		oids[i] = binary.BigEndian.Uint32(rest[4*i:])
	}
	if err := checkText(text); err != nil {
		return err
	}
	if err := c.prepare(name, text, oids); err != nil {
		return err
	}
	c.out = wire.AppendEmpty(c.out, wire.ParseComplete)
	return nil
}

func (c *Conn) prepare(name, text string, oids []uint32) error {
	if name == "" {
		c.dropPrepared("")
	} else if c.prepared[name] != nil {
		return sqlstate.New(sqlstate.DuplicatePrepared, "prepared statement \"%s\" already exists", name)
	}
	if len(c.prepared) >= preparedMax {
		return sqlstate.New(sqlstate.ConfigurationLimit, "more than %d prepared statements in one session", preparedMax).WithHint("Close those no longer used (DEALLOCATE).")
	}
	for i, o := range oids {
		if o == oidUnknown {
			oids[i] = 0
		}
	}
	key := planKey(text, oids, false)
	if c.plans.get(key) != nil && c.tx.block != txFailed {
		if err := c.begin(false); err != nil {
			return err
		}
	}
	p, err := c.planFor(text, oids, false)
	if err != nil {
		return err
	}
	p.pins++
	c.prepared[name] = &prepared{text: text, oids: oids, plan: p, cols: p.cols}
	return nil
}

func (c *Conn) dropPrepared(name string) {
	if s := c.prepared[name]; s != nil {
		s.plan.unpin()
		delete(c.prepared, name)
	}
}

func (c *Conn) bind(body []byte) error {
	portalName, rest, ok := wire.CutString(body)
	if !ok {
		return malformed()
	}
	stmtName, rest, ok := wire.CutString(rest)
	if !ok {
		return malformed()
	}
	u16 := func() (int, bool) {
		if len(rest) < 2 {
			return 0, false
		}
		v := int(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
		return v, true
	}
	formats := func() ([]int16, bool) {
		n, ok := u16()
		if !ok || len(rest) < 2*n {
			return nil, false
		}
		out := make([]int16, n)
		for i := range out {
			out[i] = int16(binary.BigEndian.Uint16(rest[2*i:]))
		}
		rest = rest[2*n:]
		return out, true
	}
	in, ok := formats()
	if !ok {
		return malformed()
	}
	n, ok := u16()
	if !ok {
		return malformed()
	}
	s := c.prepared[stmtName]
	if s == nil {
		if stmtName == "" {
			return sqlstate.New(sqlstate.InvalidStatementName, "unnamed prepared statement does not exist")
		}
		return sqlstate.New(sqlstate.InvalidStatementName, "prepared statement \"%s\" does not exist", stmtName)
	}
	if c.tx.block == txFailed && !s.plan.exitsFailed() {
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	if len(in) > 1 && len(in) != n {
		return sqlstate.New(sqlstate.ProtocolViolation, "bind message has %d parameter formats but %d parameters", len(in), n)
	}
	if n != len(s.plan.params) {
		return sqlstate.New(sqlstate.ProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires %d", n, stmtName, len(s.plan.params))
	}
	p := &portal{name: portalName, plan: s.plan, source: s, args: make([]datum, n), level: len(c.tx.savepoints)}
	if s.plan.fetch != nil {
		// The cursor may be another one than at Parse.
		var err error
		if p.plan, err = c.planFetch(s.plan.fetch, s.plan.text); err != nil {
			return err
		}
	}
	for i := range n {
		if len(rest) < 4 {
			return malformed()
		}
		size := int32(binary.BigEndian.Uint32(rest))
		rest = rest[4:]
		if size < 0 {
			continue
		}
		if int64(size) > int64(len(rest)) {
			return malformed()
		}
		v := rest[:size]
		rest = rest[size:]
		format := int16(0)
		if len(in) == 1 {
			format = in[0]
		} else if len(in) > 1 {
			format = in[i]
		}
		var err error
		switch format {
		case 0:
			text := string(v)
			if err = checkText(text); err == nil {
				p.args[i], err = c.textParam(s.plan.params[i], text)
			}
		case 1:
			p.args[i], err = datumFromBinary(s.plan.params[i], v)
		default:
			err = sqlstate.New(sqlstate.InvalidParameterValue, "unsupported format code: %d", format)
		}
		if err != nil {
			e := *sqlstate.As(err)
			if e.Where == "" && format == 0 {
				e.Where = "unnamed portal parameter $" + strconv.Itoa(i+1) + " = '...'"
				if portalName != "" {
					e.Where = "portal \"" + portalName + "\" parameter $" + strconv.Itoa(i+1) + " = '...'"
				}
			}
			return &e
		}
	}
	out, ok := formats()
	if !ok || len(rest) != 0 {
		return malformed()
	}
	if len(out) > 1 && len(out) != len(s.plan.cols) {
		return sqlstate.New(sqlstate.ProtocolViolation, "bind message has %d result formats but query has %d columns", len(out), len(s.plan.cols))
	}
	for _, f := range out {
		if f != 0 && f != 1 {
			return sqlstate.New(sqlstate.InvalidParameterValue, "unsupported format code: %d", f)
		}
	}
	p.formats = out
	if portalName == "" {
		c.closePortal("")
	} else if c.portals[portalName] != nil {
		return sqlstate.New("42P03", "cursor \"%s\" already exists", portalName)
	}
	if len(c.portals) >= portalMax {
		return sqlstate.New(sqlstate.ConfigurationLimit, "more than %d portals in one session", portalMax)
	}
	c.portals[portalName] = p
	c.out = wire.AppendEmpty(c.out, wire.BindComplete)
	return nil
}

// textParam reads a parameter in text format.
func (c *Conn) textParam(oid uint32, text string) (datum, error) {
	if isReg(oid) {
		i, err := c.env.reg(oid, text)
		return intDatum(i), err
	}
	return datumIn(oid, text, c.env.loc)
}

func (c *Conn) describe(body []byte) error {
	if len(body) < 1 {
		return malformed()
	}
	name, _, ok := wire.CutString(body[1:])
	if !ok {
		return malformed()
	}
	switch body[0] {
	case 'S':
		s := c.prepared[name]
		if s == nil {
			if name == "" {
				return sqlstate.New(sqlstate.InvalidStatementName, "unnamed prepared statement does not exist")
			}
			return sqlstate.New(sqlstate.InvalidStatementName, "prepared statement \"%s\" does not exist", name)
		}
		if c.tx.block == txFailed && !s.plan.exitsFailed() {
			return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
		}
		if s.plan.kind == queryPlan {
			// The table may have changed since Parse.
			if err := c.begin(false); err != nil {
				return err
			}
			if !c.fresh(s.plan) {
				if err := c.refresh(&portal{plan: s.plan, source: s}); err != nil {
					return err
				}
			}
		}
		if s.plan.fetch != nil {
			p, err := c.planFetch(s.plan.fetch, s.plan.text)
			if err != nil {
				return err
			}
			s.plan = p
		}
		c.out = wire.AppendParameterDescription(c.out, s.plan.params)
		if !s.plan.returns {
			c.out = wire.AppendEmpty(c.out, wire.NoData)
		} else {
			c.out = appendRowDescription(c.out, s.plan.cols, func(int) int16 { return 0 })
		}
	case 'P':
		p := c.portals[name]
		if p == nil {
			return sqlstate.New(sqlstate.InvalidCursorName, "portal \"%s\" does not exist", name)
		}
		if !p.plan.returns {
			c.out = wire.AppendEmpty(c.out, wire.NoData)
		} else {
			c.out = appendRowDescription(c.out, p.plan.cols, p.format)
		}
	default:
		return sqlstate.New(sqlstate.ProtocolViolation, "invalid DESCRIBE message subtype %d", body[0])
	}
	return nil
}

func (c *Conn) execute(body []byte) error {
	name, rest, ok := wire.CutString(body)
	if !ok || len(rest) != 4 {
		return malformed()
	}
	p := c.portals[name]
	if p == nil {
		return sqlstate.New(sqlstate.InvalidCursorName, "portal \"%s\" does not exist", name)
	}
	if p.plan.empty {
		c.out = wire.AppendEmpty(c.out, wire.EmptyQueryResponse)
		return nil
	}
	err := c.startExecute(p, int32(binary.BigEndian.Uint32(rest)), false)
	if err != nil {
		if c.env.err != nil {
			err, c.env.err = c.env.err, nil
		}
		err = c.explainConstraint(p, err)
	}
	return err
}

func (c *Conn) closeMessage(body []byte) error {
	if len(body) < 1 {
		return malformed()
	}
	name, _, ok := wire.CutString(body[1:])
	if !ok {
		return malformed()
	}
	switch body[0] {
	case 'S':
		c.dropPrepared(name)
	case 'P':
		c.closePortal(name)
	default:
		return sqlstate.New(sqlstate.ProtocolViolation, "invalid CLOSE message subtype %d", body[0])
	}
	c.out = wire.AppendEmpty(c.out, wire.CloseComplete)
	return nil
}
