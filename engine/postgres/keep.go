package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
)

// Who owns the internal tables. All clients' statements run as the URL's role, so what that owns is one missed check away from a client. Where the
// shard has a mover, schema and tables of cleave_internal are its own, and the URL's role has what the router's own statements need. The guards'
// functions stay the URL's role's: schema changes replace them in transactions of that role, which owns the guarded tables anyway.

var _ engine.Keeper = (*shard)(nil)

// rights are what the URL's role may do with the internal tables besides reading them, which pg_dump needs.
var rights = []struct{ table, may string }{
	{"shard", ""},
	{"transaction", "INSERT (id, shards, decided), DELETE"},
	{"schema_change", "INSERT (id), DELETE"},
	{"leader", ""},
	{"capture", ""},
	{"applied", ""},
	{"loaded", ""},
	{"loaded_part", ""},
	{"leader_of_parts", ""},
}

// strangersSQL lists schema and tables that are not the mover's, or on which the URL's role lacks its rights, as ALTER names them.
func (s *shard) strangersSQL() string {
	var tables []string
	for _, r := range rights {
		tables = append(tables, literal(r.table))
	}
	mover := roleOID(s.base.User + MoverSuffix)
	return "SELECT pg_catalog.string_agg(o.what, ', ' ORDER BY o.what) FROM (SELECT 'TABLE cleave_internal.' OPERATOR(pg_catalog.||) c.relname::pg_catalog.text FROM pg_catalog.pg_class AS c " +
		"JOIN pg_catalog.pg_namespace AS n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace WHERE n.nspname OPERATOR(pg_catalog.=) 'cleave_internal' AND c.relkind::pg_catalog.text OPERATOR(pg_catalog.=) 'r' " +
		"AND c.relname::pg_catalog.text = ANY (ARRAY[" + strings.Join(tables, ", ") + "]) AND (c.relowner OPERATOR(pg_catalog.<>) " + mover +
		" OR NOT pg_catalog.has_table_privilege(" + roleOID(s.base.User) + ", c.oid, 'SELECT') OR c.relname::pg_catalog.text = ANY (ARRAY['transaction', 'schema_change']) " +
		"AND NOT pg_catalog.has_table_privilege(" + roleOID(s.base.User) + ", c.oid, 'DELETE'))" +
		" UNION ALL SELECT 'SCHEMA cleave_internal' FROM pg_catalog.pg_namespace AS n WHERE n.nspname OPERATOR(pg_catalog.=) 'cleave_internal' AND (n.nspowner OPERATOR(pg_catalog.<>) " + mover +
		" OR NOT pg_catalog.has_schema_privilege(" + roleOID(s.base.User) + ", n.oid, 'CREATE'))) AS o(what)"
}

// keepLock is how long Keep waits for writers of the tables; others wait behind it.
const keepLock = "100ms"

// keepSQL is one transaction, as the mover.
func (s *shard) keepSQL() string {
	role, mover := quoteName(s.base.User), quoteName(s.base.User+MoverSuffix)
	var b strings.Builder
	fmt.Fprintf(&b, "BEGIN; SET LOCAL lock_timeout = '%s'; SELECT pg_catalog.pg_advisory_xact_lock(%d);\n", keepLock, int64(installLock))
	fmt.Fprintf(&b, "ALTER SCHEMA cleave_internal OWNER TO %s; GRANT USAGE ON SCHEMA cleave_internal TO PUBLIC; GRANT USAGE, CREATE ON SCHEMA cleave_internal TO %s;\n", mover, role)
	fmt.Fprintf(&b, "%s;\n%s;\n%s;\n", engine.TransactionTable, engine.SchemaChangeTable, moveTables)
	for _, r := range rights {
		table := "cleave_internal." + r.table
		// Owner first: what the role had as the owner goes over, and nothing else is left to it.
		fmt.Fprintf(&b, "ALTER TABLE %[1]s OWNER TO %[2]s; REVOKE ALL ON %[1]s FROM %[3]s; GRANT SELECT ON %[1]s TO %[3]s;\n", table, mover, role)
		if r.may != "" {
			fmt.Fprintf(&b, "GRANT %s ON %s TO %s;\n", r.may, table, role)
		}
	}
	b.WriteString("REVOKE INSERT ON cleave_internal.transaction FROM PUBLIC; GRANT INSERT (id, shards, decided) ON cleave_internal.transaction TO PUBLIC; COMMIT")
	return b.String()
}

// Keep implements engine.Keeper.
func (s *shard) Keep(ctx context.Context) error {
	const op = "keep the internal tables"
	params := map[string]string{}
	for k, v := range plainParams {
		params[k] = v
	}
	if name := s.mover.Load(); name != nil && *name == "" {
		s.mover.CompareAndSwap(name, nil) // there may be one since
	}
	if err := s.moverParams(ctx, params); err != nil || params[paramMover] == "" {
		return err
	}
	c, err := s.connect(ctx, params)
	if err != nil {
		return err
	}
	defer c.Close()
	res, err := c.exec(ctx, s.strangersSQL())
	if err != nil || res.Rows[0][0].Null {
		return s.kept(op, err)
	}
	_, err = c.exec(ctx, s.keepSQL())
	return s.kept(op, err)
}

func (s *shard) kept(op string, err error) error {
	if err == nil {
		return nil
	}
	return s.failed(op, err)
}

// keepFinding is that the internal tables are not the mover's, though there is one.
func (s *shard) keepFinding(ctx context.Context, c *conn, got answers) (*engine.Finding, error) {
	if got["mover"] == "" {
		return nil, nil
	}
	res, err := c.exec(ctx, s.strangersSQL())
	if err != nil {
		return nil, s.failed("check", err)
	}
	f := &engine.Finding{Name: "owner of cleave_internal", Level: levelOK, Is: got["mover"]}
	if strangers := res.Rows[0][0]; !strangers.Null {
		var fix []string
		all := strings.Split(strangers.String, ", ")
		for _, what := range all {
			fix = append(fix, "ALTER "+what+" OWNER TO "+got["mover_name"])
		}
		f.Level, f.Is, f.Want = levelWarning, "another role: "+strangers.String, got["mover"]+": no client's statement runs as that. The leader sees to it within a minute"
		f.Fix = "if it does not, as a superuser: " + strings.Join(fix, "; ") + "; GRANT CREATE ON SCHEMA cleave_internal TO " + got["role"] +
			"; GRANT SELECT ON ALL TABLES IN SCHEMA cleave_internal TO " + got["role"]
		for _, r := range rights {
			if r.may != "" && slices.Contains(all, "TABLE cleave_internal."+r.table) { // some are made when they are needed
				f.Fix += "; GRANT " + r.may + " ON cleave_internal." + r.table + " TO " + got["role"]
			}
		}
		if slices.Contains(all, "TABLE cleave_internal.transaction") {
			f.Fix += "; GRANT INSERT (id, shards, decided) ON cleave_internal.transaction TO PUBLIC"
		}
	}
	return f, nil
}

// keepIfPossible is Keep for an installation, which is whole without it: the leader does it later.
func (s *shard) keepIfPossible(ctx context.Context) error {
	if err := s.Keep(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}
