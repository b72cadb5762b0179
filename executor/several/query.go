package several

import (
	"strings"

	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// script is a simple Query being run: its statements are one transaction, unless
// a block is open or one of them begins one.
type script struct {
	texts []string
	next  int
}

func (c *Conn) query(body []byte) {
	sql, err := wire.ReadQuery(body)
	if err != nil {
		c.fail(err)
		c.endQuery()
		return
	}
	c.prepared.Replace("")
	c.portals.Drop("")
	text := string(sql)
	texts := []string{text}
	if strings.Contains(text, ";") {
		if texts, err = c.Ex.Split(text); err != nil {
			c.fail(err)
			c.endQuery()
			return
		}
	}
	c.script = &script{texts: texts}
}

// runScript goes on with the statements of a Query.
func (c *Conn) runScript() {
	s := c.script
	if s.next >= len(s.texts) {
		c.script = nil
		if len(s.texts) == 0 {
			c.out = wire.AppendEmpty(c.out, wire.EmptyQueryResponse)
		}
		c.endQuery()
		return
	}
	text := s.texts[s.next]
	s.next++
	if err := c.runText(text); err != nil {
		c.script = nil
		c.fail(err)
		c.endQuery()
	}
}

// runText begins one statement of a Query.
func (c *Conn) runText(text string) error {
	st, err := c.plan(text)
	if err != nil {
		return err
	}
	if st.Kind == plan.TxKind {
		return c.control(st)
	}
	s := &prepared{text: text, st: st}
	if st.Kind == plan.SetKind && st.Set.Op != "show" && st.Set.Op != "show all" && st.Set.Op != "set_config" {
		return c.set(st)
	}
	if err := c.analyse(s); err != nil {
		return err
	}
	if st.Params > 0 {
		return sqlstate.New(sqlstate.UndefinedParameter, "there is no parameter $%d", st.Params)
	}
	p := &portal{stmt: s, e: execution{st: s.st, desc: s.desc, args: &plan.Args{}, simple: true}}
	if st.Cursor != nil { // whether it can go there is known before the columns are told (FillPortalStore of pquery.c)
		err = c.start(p, 0, true)
	}
	if s.desc.columns != nil && err == nil {
		c.out = s.desc.formatted(c.out, c.simpleFormats(st))
	}
	if st.Cursor != nil {
		return err
	}
	return c.start(p, 0, true)
}

// completed answers a statement that is complete. The last one of a Query is
// complete when its transaction is.
func (c *Conn) completed(tag string, simple bool) {
	if simple && (c.script == nil || c.script.next >= len(c.script.texts)) && !c.Block {
		if err := c.endUnit(); err != nil {
			c.script = nil
			c.fail(err)
			c.endQuery()
			return
		}
	}
	c.out = wire.AppendCommandComplete(c.out, tag)
}

// endQuery ends a Query: with an error everything that it did is rolled back.
func (c *Conn) endQuery() {
	if err := c.endUnit(); err != nil {
		c.fail(err)
	}
	c.ready()
}
