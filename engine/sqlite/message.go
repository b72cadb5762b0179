package sqlite

import (
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/cleavedb/cleave/engine/sqlite/fault"
	"github.com/cleavedb/cleave/engine/sqlite/syntax"
	"github.com/cleavedb/cleave/engine/sqlite/translate"
	"github.com/cleavedb/cleave/engine/sqlite/value"
	"github.com/cleavedb/cleave/internal/pgbackend"
	"github.com/cleavedb/cleave/internal/pgoid"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/sqlstate"
)

type scriptStmt struct {
	raw  *pg.RawStmt
	text string
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

func (c *transaction) fresh(p *plan) bool {
	return p.kind == controlPlan || p.settings == c.settings.version && c.names.Catalog != nil && p.generation == c.names.Catalog.Generation
}

// planFor returns the plan of a text that holds one statement, or none.
func (c *Conn) planFor(text string, oids []uint32, fixed bool) (*plan, error) {
	key := planKey(text, oids, fixed)
	if p := c.plans.get(key); p != nil && c.fresh(p) {
		return p, nil
	}
	tree, err := syntax.Tree(text)
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
				o = pgoid.Text
			}
			p.Params = append(p.Params, o)
		}
		return p, nil
	}
	if p, err = c.translateStatement(raw, text, oids, fixed); err != nil {
		return nil, err
	}
	if key != "" && len(key) < 64<<10 {
		c.plans.put(key, p)
	} else {
		p.evicted = true // nobody finds it again: its statements are not kept
	}
	return p, nil
}

// exitsFailed reports the statements that a failed block accepts.
func (p *plan) exitsFailed() bool {
	if p.empty {
		return true
	}
	return p.kind == controlPlan && (p.Tag == "COMMIT" || p.Tag == "ROLLBACK" || p.Tag == "PREPARE TRANSACTION")
}

func (c *Conn) simpleQuery(body []byte) error {
	sql, err := wire.ReadQuery(body)
	if err != nil {
		return err
	}
	c.prepared.Replace("")
	c.portals.Drop("")
	c.endStatement() // the portal's snapshot is not the statement's
	text := string(sql)
	if err := value.CheckText(text); err != nil {
		return err
	}
	key := planKey(text, nil, true)
	if p := c.plans.get(key); p != nil && c.tx.block != txFailed {
		c.script = &script{plans: []*plan{p}, stmts: []scriptStmt{{text: text}}}
		return nil
	}
	tree, err := syntax.Tree(text)
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
	err := fault.Guard(func() error {
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
		if p.plan.Returns && p.copy == nil {
			c.out = appendRowDescription(c.out, p.plan.Columns, nil)
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
		p.end()
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
	m, err := wire.ReadParse(body)
	if err != nil {
		return err
	}
	name, text, oids := string(m.Name), string(m.Text), m.OIDs
	if err := value.CheckText(text); err != nil {
		return err
	}
	c.prepared.Replace(name)
	for i, o := range oids {
		if o == pgoid.Unknown {
			oids[i] = 0
		}
	}
	if c.plans.get(planKey(text, oids, false)) != nil && c.tx.block != txFailed {
		if err := c.begin(false); err != nil {
			return err
		}
	}
	p, err := c.planFor(text, oids, false)
	if err != nil {
		return err
	}
	if err := c.prepared.Add(name, &prepared{text: text, oids: oids, plan: p, cols: p.Columns}, len(text)); err != nil {
		return err
	}
	p.pins++
	c.out = wire.AppendEmpty(c.out, wire.ParseComplete)
	return nil
}

func (c *Conn) bind(body []byte) error {
	var m wire.BindMessage
	if err := m.Names(body); err != nil {
		return err
	}
	s, err := c.prepared.Get(m.Statement)
	if err != nil {
		return err
	}
	switch n, err := m.Counts(); {
	case err != nil:
		return err
	case n != len(s.plan.Params):
		return pgbackend.Unsupplied(n, string(m.Statement), len(s.plan.Params))
	case c.tx.block == txFailed && !s.plan.exitsFailed():
		return sqlstate.New(sqlstate.InFailedTransaction, "current transaction is aborted, commands ignored until end of transaction block")
	}
	p := &portal{name: string(m.Portal), plan: s.plan, source: s}
	if s.plan.fetch != nil {
		// The cursor may be another one than at Parse.
		if p.plan, err = c.planFetch(s.plan.fetch, s.plan.text); err != nil {
			return err
		}
	}
	if err := c.portals.Free(m.Portal); err != nil {
		return err
	}
	if p.name == "" {
		c.portals.Drop("") // it gives way, with its snapshot
	}
	if err := m.Args(); err != nil {
		return err
	}
	if p.args, err = c.boundArgs(s.plan.Params, &m); err != nil {
		return err
	}
	if err := p.setFormats(m.ResultFormats()); err != nil {
		return err
	}
	if err := p.startRead(c); err != nil {
		return err
	}
	c.portals.Put(p.name, p, c.tx.saves.Len())
	c.out = wire.AppendEmpty(c.out, wire.BindComplete)
	return nil
}

// startRead starts a portal that only reads: what it reads from is the snapshot of Bind, as in PostgreSQL.
func (p *portal) startRead(c *Conn) error {
	if p.plan.kind != queryPlan || p.plan.Write || p.plan.Locks {
		return nil
	}
	c.endStatement() // Parse may have taken a snapshot before
	return c.run(p)
}

// setFormats sets the formats of the result's columns.
func (p *portal) setFormats(formats []int16) error {
	p.formats = formats
	if p.plan.Returns {
		if err := wire.CheckResults(formats, len(p.plan.Columns)); err != nil {
			return err
		}
	}
	for _, f := range formats {
		if f != 0 && f != 1 {
			return sqlstate.New(sqlstate.InvalidParameterValue, "unsupported format code: %d", f)
		}
	}
	return nil
}

// boundArgs reads the values of a Bind.
func (c *definitions) boundArgs(params []uint32, m *wire.BindMessage) (args []value.Datum, err error) {
	args = make([]value.Datum, len(params))
	for i, v := range m.Values {
		if v == nil {
			continue
		}
		format := wire.FormatAt(m.Formats, i)
		switch format {
		case 0:
			text := string(v)
			if err = value.CheckText(text); err == nil {
				args[i], err = c.textParam(params[i], text)
			}
		case 1:
			args[i], err = value.FromBinary(params[i], v)
		default:
			err = sqlstate.New(sqlstate.InvalidParameterValue, "unsupported format code: %d", format)
		}
		if err != nil {
			e := *sqlstate.As(err)
			if e.Where == "" && format == 0 {
				e.Where = "unnamed portal parameter $" + strconv.Itoa(i+1) + " = '...'"
				if len(m.Portal) > 0 {
					e.Where = "portal \"" + string(m.Portal) + "\" parameter $" + strconv.Itoa(i+1) + " = '...'"
				}
			}
			return nil, &e
		}
	}
	return args, nil
}

// textParam reads a parameter in text format.
func (c *definitions) textParam(oid uint32, text string) (value.Datum, error) {
	if translate.IsReg(oid) {
		i, err := c.names.RegIn(oid, text)
		return value.Int(i), err
	}
	return value.In(oid, text, c.env.Loc)
}

func (c *Conn) describe(body []byte) error {
	what, name, err := wire.ReadDescribe(body)
	if err != nil {
		return err
	}
	if what == 'P' {
		p, ok := c.portals.Named(name)
		switch {
		case !ok:
			return pgbackend.NoPortal(string(name))
		case p.plan.Returns:
			c.out = appendRowDescription(c.out, p.plan.Columns, p.formats)
		default:
			c.out = wire.AppendEmpty(c.out, wire.NoData)
		}
		return nil
	}
	s, err := c.prepared.Get(name)
	if err != nil {
		return err
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
		if s.plan, err = c.planFetch(s.plan.fetch, s.plan.text); err != nil {
			return err
		}
	}
	c.out = wire.AppendParameterDescription(c.out, s.plan.Params)
	if !s.plan.Returns {
		c.out = wire.AppendEmpty(c.out, wire.NoData)
	} else {
		c.out = appendRowDescription(c.out, s.plan.Columns, nil)
	}
	return nil
}

func (c *Conn) execute(body []byte) error {
	name, rows, err := wire.ReadExecute(body)
	if err != nil {
		return err
	}
	p, ok := c.portals.Named(name)
	switch {
	case !ok:
		return pgbackend.NoPortal(string(name))
	case p.plan.empty:
		c.out = wire.AppendEmpty(c.out, wire.EmptyQueryResponse)
		return nil
	}
	if err = c.startExecute(p, rows, false); err != nil {
		if c.env.Err != nil {
			err, c.env.Err = c.env.Err, nil
		}
		err = c.explained(p, err)
	}
	return err
}

func (c *Conn) closeMessage(body []byte) error {
	what, name, err := wire.ReadClose(body)
	switch {
	case err != nil:
		return err
	case what == 'S':
		c.prepared.Drop(string(name))
	default:
		c.portals.Drop(string(name))
		c.endStatement()
	}
	c.out = wire.AppendEmpty(c.out, wire.CloseComplete)
	return nil
}
