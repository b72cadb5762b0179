package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cleavedb/cleave/cmd/cleave/internal/terminal"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/internal/wiring"
	"github.com/cleavedb/cleave/placement/simulate"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// rowBytesMax bounds one row of a table that is read, bytes.
const rowBytesMax = 64 << 20

// sessionSettings make a session write keys as the router reads them, and keep
// it from writing anything.
const sessionSettings = "SET DateStyle = 'ISO'; SET TimeZone = 'UTC'; SET bytea_output = 'hex'; SET default_transaction_read_only = on"

// Table is a table that is read from a database, or from all shards that
// hold it. It is a [keysource.Source].
type Table struct {
	Schema, Name string
	Described    []simulate.Column // its columns
	ShardKey     []string          // of a table that is sharded already
	parts        []tablePart
	Shards       int // in the cluster; 0 for a database by URL
	estimate     int64
	done         atomic.Int64
}

// tablePart is one database with rows of the table.
type tablePart interface {
	// read gives visit the rows of a query, NULL as nil.
	read(ctx context.Context, sql string, visit func(fields [][]byte) error) error
	close()
}

// collect reads a small result.
func collect(ctx context.Context, p tablePart, sql string) ([][]string, error) {
	var rows [][]string
	err := p.read(ctx, sql, func(fields [][]byte) error {
		row := make([]string, len(fields))
		for i, f := range fields {
			row[i] = string(f)
		}
		rows = append(rows, row)
		return nil
	})
	return rows, err
}

// Columns are the names of its columns.
func (t *Table) Columns() []string {
	names := make([]string, len(t.Described))
	for i := range t.Described {
		names[i] = t.Described[i].Name
	}
	return names
}

// Progress is how many rows were read, and about how many there are.
func (t *Table) Progress() (done, all int64) { return t.done.Load(), t.estimate }

// Close ends the connections.
func (t *Table) Close() error {
	for _, p := range t.parts {
		p.close()
	}
	return nil
}

// Rows reads the table in the order in which its rows are stored, which is
// mostly that in which they came.
func (t *Table) Rows(ctx context.Context, columns []int, visit func(fields [][]byte) error) error {
	t.done.Store(0)
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = pgx.Identifier{t.Described[c].Name}.Sanitize()
	}
	sql := "SELECT " + strings.Join(list, ", ") + " FROM " + pgx.Identifier{t.Schema, t.Name}.Sanitize()
	for _, p := range t.parts {
		err := p.read(ctx, sql, func(fields [][]byte) error {
			t.done.Add(1)
			return visit(fields)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// OpenDatabase opens a table of a PostgreSQL database, sharded or not.
func OpenDatabase(ctx context.Context, url, table string) (*Table, error) {
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "%s is not the URL of a PostgreSQL database", shardmap.Redacted(url)).
			WithHint("postgres://USER@HOST:PORT/DATABASE")
	}
	cfg.RuntimeParams["application_name"] = "cleave simulate"
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		if e := terminal.ServerError(err); sqlstate.CodeOf(e) != sqlstate.InternalError {
			return nil, e
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, sqlstate.New(sqlstate.CannotConnectNow, "the database at %s:%d cannot be reached", cfg.Host, cfg.Port).
			WithHint("try the same URL with psql")
	}
	conn.Frontend().SetMaxBodyLen(rowBytesMax)
	p := &databasePart{conn}
	t := &Table{parts: []tablePart{p}}
	if err := t.describe(ctx, p, table); err != nil {
		p.close()
		return nil, err
	}
	return t, nil
}

type databasePart struct{ conn *pgconn.PgConn }

func (p *databasePart) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_ = p.conn.Close(ctx) // it was only read from
}

func (p *databasePart) read(ctx context.Context, sql string, visit func(fields [][]byte) error) error {
	results := p.conn.Exec(ctx, sql)
	var stopped error
	for stopped == nil && results.NextResult() {
		r := results.ResultReader()
		for stopped == nil && r.NextRow() {
			stopped = visit(r.Values())
		}
	}
	if stopped != nil {
		// Reading the rest would take as long as the whole: the connection goes.
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.conn.Close(ended)
		return stopped
	}
	err := results.Close()
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	if e := sqlstate.As(terminal.ServerError(err)); e.Code == sqlstate.FeatureNotSupported {
		return e.WithHint("--from table:NAME reads the shards themselves")
	} else if e.Code != sqlstate.InternalError {
		return e
	}
	return sqlstate.Wrap(err, sqlstate.ConnectionFailure, "the connection to the database was lost while it was read").WithHint("run the command again")
}

// OpenTable opens a table of a cluster by its map, on all shards that hold it.
func OpenTable(ctx context.Context, state *shardmap.State, name string) (*Table, error) {
	schema, plain, ok := strings.Cut(name, ".")
	if !ok {
		schema, plain = "public", name
	}
	i := slices.IndexFunc(state.Tables, func(t shardmap.Table) bool { return t.Schema == schema && t.Name == plain })
	if i < 0 {
		return nil, sqlstate.New(sqlstate.UndefinedTable, "there is no table %s in the cluster", name).WithHint("see: cleave table list")
	}
	def := state.Tables[i]
	t := &Table{Schema: schema, Name: plain, ShardKey: def.ShardKey, Shards: len(state.Shards)}
	owners := ownersOf(state, def.Keyspace)
	for _, s := range state.Shards {
		if !owners[s.Name] {
			continue
		}
		p, err := openShard(ctx, state.Cluster, s)
		if err != nil {
			return nil, errors.Join(err, t.Close())
		}
		t.parts = append(t.parts, p)
		if s.Can().Catalogue && len(t.Described) == 0 {
			if err := t.describe(ctx, p, pgx.Identifier{schema, plain}.Sanitize()); err != nil {
				return nil, errors.Join(err, t.Close())
			}
		}
	}
	if t.estimate *= int64(len(t.parts)); len(t.Described) == 0 { // SQLite shards keep no statistics
		for _, c := range def.Columns {
			t.Described = append(t.Described, simulate.Column{Name: c.Name, Type: c.Type, Refused: refused(c.Type), NotNull: c.NotNull, Updates: -1})
		}
	}
	if len(t.parts) > 1 {
		for i := range t.Described {
			t.Described[i].Updates = -1 // counted on one shard only
		}
	}
	return t, nil
}

// ownersOf are the shards that have rows of a keyspace's tables, the default shard without a keyspace.
func ownersOf(state *shardmap.State, keyspace string) map[string]bool {
	owners := map[string]bool{state.DefaultShard: keyspace == ""}
	for _, k := range state.Keyspaces {
		if k.Name != keyspace {
			continue
		}
		for _, r := range k.Ranges {
			owners[r.Shard] = true
		}
		for _, v := range k.Values {
			owners[v.Shard] = true
		}
		for _, p := range k.Pins {
			owners[p.Shard] = true
		}
	}
	return owners
}

type shardPart struct {
	name  string
	shard engine.Shard
	conn  engine.Conn
}

func openShard(ctx context.Context, cluster string, s shardmap.Shard) (*shardPart, error) {
	for _, d := range wiring.Drivers() {
		if d.Name() != s.Engine {
			continue
		}
		sh, err := d.Open(engine.Config{Cluster: cluster, Name: s.Name, URL: s.URL, MessageMax: rowBytesMax})
		if err != nil {
			return nil, err
		}
		conn, err := sh.Connect(ctx, map[string]string{"application_name": "cleave simulate", "client_encoding": "UTF8"})
		if err != nil {
			_ = sh.Close() // the first error is the one to report
			e := *sqlstate.As(err)
			e.Shard = s.Name
			if e.Code == sqlstate.InvalidPassword || e.Code == sqlstate.InvalidAuthorization {
				e.Hint = "the map shows no passwords: put this one into ~/.pgpass or PGPASSWORD"
			}
			return nil, &e
		}
		p := &shardPart{s.Name, sh, conn}
		if s.Can().Styles {
			if _, err := collect(ctx, p, sessionSettings); err != nil {
				p.close()
				return nil, err
			}
		}
		return p, nil
	}
	return nil, sqlstate.New(sqlstate.InternalError, "there is no engine %q", s.Engine).OnShard(s.Name).WithHint("use the version of Cleave that the cluster runs")
}

func (p *shardPart) close() {
	_ = p.conn.Close() // it was only read from
	_ = p.shard.Close()
}

func (p *shardPart) read(ctx context.Context, sql string, visit func(fields [][]byte) error) error {
	var visited error
	var failed *sqlstate.Error
	err := engine.Bounded(ctx, p.conn, time.Time{}, func() error {
		if err := p.conn.Send(wire.AppendQuery(nil, sql)); err != nil {
			return err
		}
		var row [][]byte
		for {
			b, err := p.conn.Receive()
			if err != nil {
				return err
			}
			for len(b) > 0 {
				f, rest, ok, err := wire.Cut(b)
				if err != nil {
					return err
				}
				if !ok {
					return wire.ErrMalformed
				}
				b = rest
				switch f.Type() {
				case wire.DataRow:
					if row, err = wire.SplitRow(f.Body(), row[:0]); err != nil {
						return err
					}
					if visited = visit(row); visited != nil {
						return p.conn.Close()
					}
				case wire.ErrorResponse:
					failed = wire.ParseReport(f.Body())
				case wire.ReadyForQuery:
					return nil
				}
			}
		}
	})
	switch {
	case visited != nil:
		return visited
	case ctx.Err() != nil:
		return ctx.Err()
	case failed != nil:
		return failed.OnShard(p.name)
	case err != nil:
		return sqlstate.Wrap(err, sqlstate.ConnectionFailure, "shard %s was lost while it was read", p.name).WithHint("cleave doctor")
	}
	return nil
}

// statisticsBegan is Column.Since where the statistics were never reset.
const statisticsBegan = "the server's statistics began"

// describe reads what the catalogue and the statistics of a PostgreSQL
// database say of a table. It fails with 42P01 if there is none.
func (t *Table) describe(ctx context.Context, p tablePart, table string) error {
	if _, err := collect(ctx, p, sessionSettings); err != nil {
		return err
	}
	literal := "'" + strings.ReplaceAll(table, "'", "''") + "'"
	rows, err := collect(ctx, p, `SELECT n.nspname, c.relname, c.relkind, greatest(c.reltuples, 0)::bigint, c.oid::bigint
		FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE c.oid = pg_catalog.to_regclass(`+literal+`)::oid`)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return sqlstate.New(sqlstate.UndefinedTable, "there is no table %s", table).WithHint(`write it as in a SELECT: orders, sales.orders, "Orders"`)
	}
	t.Schema, t.Name = rows[0][0], rows[0][1]
	kind, oid := rows[0][2], rows[0][4]
	if _, err := fmt.Sscan(rows[0][3], &t.estimate); err != nil {
		return fmt.Errorf("reltuples: %w", err)
	}
	updates, since := [2]int64{-1, 0}, ""
	if kind == "r" {
		stats, err := collect(ctx, p, `SELECT s.n_tup_upd, s.n_tup_hot_upd, coalesce(to_char(d.stats_reset, 'YYYY-MM-DD'), '')
			FROM pg_catalog.pg_stat_user_tables s, pg_catalog.pg_stat_database d WHERE s.relid = `+oid+` AND d.datname = pg_catalog.current_database()`)
		if err != nil {
			return err
		}
		if len(stats) == 1 {
			if _, err := fmt.Sscan(stats[0][0]+" "+stats[0][1], &updates[0], &updates[1]); err != nil {
				return fmt.Errorf("pg_stat_user_tables: %w", err)
			}
			if since = stats[0][2]; since == "" {
				since = statisticsBegan
			}
		}
	}
	rows, err = collect(ctx, p, columnsQuery(oid))
	if err != nil {
		return err
	}
	for _, r := range rows {
		c, err := column(r)
		if err != nil {
			return err
		}
		c.Updates, c.HeapOnly, c.Since = updates[0], updates[1], since
		t.Described = append(t.Described, c)
	}
	return nil
}

// column reads a row of columnsQuery.
func column(r []string) (simulate.Column, error) {
	c := simulate.Column{
		Name: r[0], Type: r[1], NotNull: r[2] == "t", Generated: r[3] == "t", InPrimaryKey: r[6] == "t", Indexed: r[7] == "t",
		UpdateTriggers: lines0(r[8]), Cascades: lines0(r[9]), References: lines0(r[10]), UniqueWithout: lines0(r[11]),
	}
	c.Refused = refused(c.Type)
	if r[4] == "f" {
		c.Refused = "its collation is nondeterministic: it holds different texts to be equal, and they would land on different shards"
	}
	if _, err := fmt.Sscan(r[5], &c.Values); err != nil {
		return c, fmt.Errorf("pg_enum: %w", err)
	}
	if c.Type == "boolean" {
		c.Values = 2
	}
	for _, check := range lines0(r[12]) {
		if n := listedValues(check); n > 0 && (c.Values == 0 || n < c.Values) {
			c.Values = n
		}
	}
	return c, nil
}

func lines0(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// columnsQuery reads one row for each column. Lists have newlines between them.
func columnsQuery(oid string) string {
	list := func(from string) string { return "array_to_string(ARRAY(SELECT " + from + "), E'\\n')" }
	return `SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated <> '',
		coalesce((SELECT l.collisdeterministic FROM pg_catalog.pg_collation l WHERE l.oid = a.attcollation), true),
		(SELECT count(*) FROM pg_catalog.pg_enum e WHERE e.enumtypid = a.atttypid),
		EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
		EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid JOIN pg_catalog.pg_am m ON m.oid = x.relam
			WHERE i.indrelid = a.attrelid AND i.indisvalid AND m.amname IN ('btree', 'hash') AND a.attnum = ANY (i.indkey)),
		` + list(`t.tgname::text FROM pg_catalog.pg_trigger t WHERE t.tgrelid = a.attrelid AND NOT t.tgisinternal AND a.attnum = ANY (t.tgattr)`) + `,
		` + list(`f.conname::text FROM pg_catalog.pg_constraint f WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey) AND f.confupdtype IN ('c', 'n', 'd')`) + `,
		` + list(`f.confrelid::regclass::text FROM pg_catalog.pg_constraint f WHERE f.conrelid = a.attrelid AND f.contype = 'f' AND a.attnum = ANY (f.conkey)`) + `,
		` + list(`CASE WHEN i.indisprimary THEN 'PRIMARY KEY ' ELSE 'UNIQUE ' END || i.indexrelid::regclass::text FROM pg_catalog.pg_index i
			WHERE i.indrelid = a.attrelid AND i.indisunique AND NOT a.attnum = ANY (i.indkey) ORDER BY 1`) + `,
		` + list(`pg_catalog.pg_get_constraintdef(k.oid) FROM pg_catalog.pg_constraint k WHERE k.conrelid = a.attrelid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum]`) + `
		FROM pg_catalog.pg_attribute a WHERE a.attrelid = ` + oid + ` AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`
}

// listedValues counts the values of a CHECK of one column that lists them, as
// pg_get_constraintdef writes c IN (...); 0 for any other check.
func listedValues(check string) int {
	_, list, ok := strings.Cut(check, "= ANY ((ARRAY[")
	if !ok {
		_, list, ok = strings.Cut(check, "= ANY (ARRAY[")
	}
	if !ok || strings.Contains(check, " OR ") || strings.Contains(check, "NOT ") {
		return 0
	}
	n, quoted := 1, false
	for _, c := range list {
		switch {
		case c == '\'':
			quoted = !quoted
		case !quoted && c == ',':
			n++
		case !quoted && c == ']':
			return n
		}
	}
	return 0
}
