package crash

import (
	"context"
	"fmt"
	"strings"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// The rows of the table that is migrated: those that were there, and those that the migration adds.
const (
	migrated = 300
	added    = 40
)

// beforeMigrate makes a sharded table with rows on both shards.
func beforeMigrate(o *operating) {
	var names []string
	for _, s := range o.snapshot().Shards() {
		names = append(names, "'"+s.Name+"'")
	}
	o.must(`SELECT cleave.create_keyspace('`+o.table()+`', 'hash', 'bigint', ranges => 2, shards => ARRAY[`+strings.Join(names, ", ")+`])`,
		`CREATE TABLE `+o.table()+` (id bigint PRIMARY KEY, n int NOT NULL) WITH (cleave.shard_key = 'id', cleave.keyspace = '`+o.table()+`')`,
		fmt.Sprintf(`INSERT INTO %s SELECT n, n FROM generate_series(1, %d) AS n`, o.table(), migrated))
}

// migrate adds a column, fills it in the rows of all shards and inserts others, in one transaction. Where shards cannot
// prepare such a one it has to be refused, which is the end of it.
func migrate(ctx context.Context, o *operating, _ admin.API) error {
	conn, err := dial(ctx, strings.Replace(o.router.url, "//app@", "//"+actor+"@", 1))
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		`BEGIN`,
		`ALTER TABLE ` + o.table() + ` ADD COLUMN d int`,
		`UPDATE ` + o.table() + ` SET d = n`,
		fmt.Sprintf(`INSERT INTO %s (id, n, d) SELECT n, n, n FROM generate_series(%d, %d) AS n`, o.table(), migrated+1, migrated+added),
		`COMMIT`,
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			if o.engine == "sqlite" && code(err) == string(sqlstate.FeatureNotSupported) {
				o.refused.Store(true)
				return nil
			}
			return fmt.Errorf("%.60s: %w", sql, err)
		}
	}
	o.acked.Store(true)
	var n int
	if err := conn.QueryRow(ctx, `SELECT count(*) FROM `+o.table()+` WHERE d = n`).Scan(&n); err == nil && n != migrated+added {
		o.t.Errorf("after its COMMIT was acknowledged the client sees %d rows with the new column's value, not %d", n, migrated+added)
	}
	return nil
}

// isMigrated reports whether the transaction was committed, or refused for good.
func isMigrated(o *operating) bool {
	return o.refused.Load() || o.engine == "postgres" && strings.HasPrefix(o.migration(&o.snapshot().Shards()[0]), "1 ")
}

// migration is what a shard has of the migration once nothing of it is prepared there: how many columns, rows from before,
// rows that came with it and rows with the new value.
func (o *operating) migration(s *shardmap.Shard) (has string) {
	o.t.Helper()
	if o.engine == "sqlite" {
		o.eventually("the file can be read", func() error {
			got, err := column(o.file(s.Name), `SELECT (SELECT count(*) FROM pragma_table_info('`+o.table()+`') WHERE name = 'd') || ' ' ||
				count(*) FILTER (WHERE n <= 300) || ' ' || count(*) FILTER (WHERE n > 300) || ' 0' FROM `+o.table())
			if err == nil {
				has = got[0]
			}
			return err
		})
		return has
	}
	o.eventually("no schema change is prepared on "+s.Name, func() error {
		// What is prepared holds the table.
		if n, err := o.onShard(s, `SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'cleave\_ddl\_%'`); err != nil || n != "0" {
			return fmt.Errorf("%s are (%v)", n, err)
		}
		var err error
		has, err = o.onShard(s, fmt.Sprintf(`SELECT (SELECT count(*) FROM pg_attribute WHERE attrelid = '%[1]s'::regclass AND attname = 'd') || ' ' ||
			count(*) FILTER (WHERE n <= %[2]d) || ' ' || count(*) FILTER (WHERE n > %[2]d) || ' ' || count(*) FILTER (WHERE to_jsonb(p) ->> 'd' = n::text) FROM %[1]s AS p`, o.table(), migrated))
		return err
	})
	return has
}

// lookMigrated reports a state that is neither all of the migration on all shards nor nothing of it on any.
func lookMigrated(o *operating) (bad []string) {
	o.t.Helper()
	acked := o.acked.Load()
	var was, is, filled, columns int
	shards := o.snapshot().Shards()
	for _, s := range shards {
		var c, w, a, f int
		if _, err := fmt.Sscan(o.migration(&s), &c, &w, &a, &f); err != nil {
			bad = append(bad, err.Error())
		}
		if w == 0 {
			bad = append(bad, s.Name+" has no rows: this tests nothing")
		}
		columns, was, is, filled = columns+c, was+w, is+a, filled+f
	}
	text := fmt.Sprintf("%d of %d shards have the column, there are %d rows from before, %d that came with it, %d with its value", columns, len(shards), was, is, filled)
	whole := columns == len(shards) && was == migrated && is == added && filled == was+is
	none := columns == 0 && was == migrated && is == 0 && filled == 0
	if acked && !whole || !whole && !none {
		bad = append(bad, fmt.Sprintf("%s (COMMIT was acknowledged: %v)", text, acked))
		return bad
	}
	// Others can go on: with the table's definition and with its rows, at both routers.
	o.looks++
	o.must(`ALTER TABLE `+o.table()+` ADD COLUMN IF NOT EXISTS later int`, fmt.Sprintf(`UPDATE %s SET later = %d`, o.table(), o.looks))
	if got, want := o.ask(fmt.Sprintf(`SELECT count(*) || ' ' || sum(n) FROM %s WHERE later = %d`, o.table(), o.looks)), fmt.Sprintf("%d %d", was+is, (was+is)*(was+is+1)/2); got != want {
		bad = append(bad, "an UPDATE after it reached "+got+", not "+want)
	}
	if whole {
		if got, want := o.ask(`SELECT count(*) || ' ' || sum(d) FROM `+o.table()+` WHERE d = n`), fmt.Sprintf("%d %d", was+is, (was+is)*(was+is+1)/2); got != want {
			bad = append(bad, "the other router reads "+got+", not "+want)
		}
	}
	return bad
}

func afterMigrate(o *operating) {
	o.must(`DROP TABLE `+o.table(), `SELECT cleave.drop_keyspace('`+o.table()+`')`)
}
