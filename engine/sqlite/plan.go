package sqlite

import (
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"
	"zombiezen.com/go/sqlite"

	"github.com/cleavedb/cleave/engine/sqlite/translate"
)

// plan is a statement ready to run. It is valid for one generation of the
// catalogue and one version of the settings that it read.
type plan struct {
	text string
	translate.Statement
	generation int64
	settings   int
	util       func(c *Conn, p *portal) error
	kind       planKind
	empty      bool
	fetch      *pg.FetchStmt // FETCH or MOVE: its columns are the cursor's

	idle    []*sqlite.Stmt
	pins    int
	evicted bool
	key     string
	prev    *plan
	next    *plan
}

type planKind uint8

const (
	queryPlan   planKind = iota
	utilityPlan          // DDL and the like: runs inside a transaction
	controlPlan          // BEGIN, COMMIT, SET, ...: decides itself
)

// translateStatement builds the plan of one statement of a SELECT, INSERT,
// UPDATE or DELETE kind.
func (c *transaction) translateStatement(raw *pg.RawStmt, text string, oids []uint32, fixed bool) (*plan, error) {
	s, err := c.translator(text).Statement(raw, oids, fixed)
	if err != nil {
		return nil, err
	}
	return &plan{text: text, Statement: *s, generation: c.names.Catalog.Generation, settings: c.settings.version}, nil
}

func (c *definitions) translator(text string) *translate.Translator {
	return translate.New(&c.names, c.env.Loc, text)
}

func itoa(i int64) string { return strconv.FormatInt(i, 10) }
