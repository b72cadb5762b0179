package several

import (
	"context"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/sqlstate"
)

// SET CONSTRAINTS holds for all parts of the transaction, those to come as well. A
// constraint of a sharded or a reference table is on every shard, one of an unsharded table on
// the default shard only: so that one says whether names are right, and each other
// shard gets those that it has.

// setsConstraints runs SET CONSTRAINTS.
func (c *transaction) setsConstraints(ctx context.Context, st *planner.Statement) error {
	if c.saves.Len() > 0 {
		return sqlstate.Refusal("CLV-1006", "SET CONSTRAINTS after a savepoint is not supported in a transaction over several shards: ROLLBACK TO SAVEPOINT would undo it").
			WithHint("SET CONSTRAINTS before the SAVEPOINT")
	}
	if names, _ := planner.NamedConstraints(st.Text); names == nil {
		return c.setsMode(st)
	}
	first, err := c.part(ctx, c.defaultShard(), false)
	if err != nil {
		return err
	}
	for _, p := range append([]*part{first}, c.parts...) {
		if p != first && !p.begun {
			continue
		}
		if p == first || p.shard != first.shard {
			if _, err := c.exec(p, "SELECT 1"); err != nil { // it has begun
				return err
			}
			if err := c.setsNamed(p, st.Text); err != nil {
				return err
			}
		}
	}
	c.modes = append(c.modes, st.Text)
	return nil
}

func (c *transaction) defaultShard() string { return c.host.Snapshot().State().DefaultShard }

// hasNamed reports whether some of the transaction's modes are SET CONSTRAINTS with names.
func (c *transaction) hasNamed() bool {
	return slices.ContainsFunc(c.modes, func(m string) bool {
		return strings.HasPrefix(m, "SET CONSTRAINTS ") && !strings.HasPrefix(m, "SET CONSTRAINTS ALL ")
	})
}

// setsNamed runs SET CONSTRAINTS with names on a part that has begun, for those constraints that the shard has.
func (c *transaction) setsNamed(p *part, text string) error {
	names, deferred := planner.NamedConstraints(text)
	if names != nil && p.shard != c.defaultShard() {
		var all []string
		for _, n := range names {
			res, err := p.conn.Exec(firstSchemaOf(n))
			if err != nil {
				return c.failure(p, err)
			}
			if len(res.Rows) > 0 {
				all = append(all, quote(res.Rows[0][0].String)+"."+quote(n.Name))
			}
		}
		if len(all) == 0 {
			return nil
		}
		text = "SET CONSTRAINTS " + strings.Join(all, ", ") + " IMMEDIATE"
		if deferred {
			text = strings.TrimSuffix(text, "IMMEDIATE") + "DEFERRED"
		}
	}
	if _, err := p.conn.Exec(text); err != nil {
		return c.failure(p, err)
	}
	return nil
}

// firstSchemaOf asks for the schema of the constraint that a name means; no row: there is none. In words that SQLite shards know as well.
func firstSchemaOf(n planner.Constraint) string {
	const constraints = " JOIN pg_catalog.pg_constraint AS c ON c.connamespace = n.oid WHERE c.conname = "
	if n.Schema != "" {
		return "SELECT n.nspname FROM pg_catalog.pg_namespace AS n" + constraints + executor.QuoteLiteral(n.Name) + " AND n.nspname = " + executor.QuoteLiteral(n.Schema) + " LIMIT 1"
	}
	return "SELECT n.nspname FROM pg_catalog.unnest(pg_catalog.current_schemas(true)) WITH ORDINALITY AS s (name, place) JOIN pg_catalog.pg_namespace AS n ON n.nspname = s.name" +
		constraints + executor.QuoteLiteral(n.Name) + " ORDER BY s.place LIMIT 1"
}
