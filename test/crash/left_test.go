package crash

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
)

// ownRelations lists what a shard has, so that nothing more is there afterwards.
var ownRelations = map[string]string{
	"postgres": `SELECT string_agg(text, E'\n' ORDER BY text) FROM (
		SELECT 'relation ' || oid::regclass::text AS text FROM pg_class WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND relkind IN ('r', 'v', 'm', 'S', 'i') AND relpersistence <> 't' AND oid::regclass::text NOT LIKE 'pg_toast%'
		UNION ALL SELECT 'trigger ' || tgrelid::regclass || '.' || tgname FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT 'function ' || oid::regprocedure FROM pg_proc WHERE pronamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
		UNION ALL SELECT 'publication ' || pubname FROM pg_publication) AS x`,
}

// standing is what must be gone from a server when nothing goes on: each is a name of it.
const standing = `SELECT string_agg(text, ', ') FROM (
	SELECT 'slot ' || slot_name AS text FROM pg_replication_slots
	UNION ALL SELECT 'publication ' || pubname FROM pg_publication
	UNION ALL SELECT 'row of capture ' || id FROM cleave_internal.capture
	UNION ALL SELECT 'row of applied ' || id FROM cleave_internal.applied
	UNION ALL SELECT 'row of loaded ' || id FROM cleave_internal.loaded
	UNION ALL SELECT 'row of loaded_part ' || id FROM cleave_internal.loaded_part
	UNION ALL SELECT 'prepared transaction ' || gid || ' since ' || prepared FROM pg_prepared_xacts WHERE prepared < now() - interval '5 seconds'
	UNION ALL SELECT 'transaction of process ' || pid || ' since ' || xact_start || ': ' || left(query, 100) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND xact_start < now() - interval '15 seconds') AS x`

// shardRelations are the names of all that the shards have.
func (l *lane) shardRelations() (text string) {
	l.t.Helper()
	for _, s := range l.snapshot().Shards() {
		var found string
		if l.engine == "sqlite" {
			found = strings.Join(l.sqliteNames(l.file(s.Name)), "\n")
		} else {
			l.eventually("the shard's relations can be listed", func() (err error) {
				found, err = l.onShard(&s, ownRelations["postgres"])
				return err
			})
		}
		text += s.Name + "\n" + found + "\n"
	}
	return text
}

// clean fails if a workflow has left anything behind.
func (l *lane) clean() {
	l.t.Helper()
	var left []string
	for end := time.Now().Add(settleMax); ; time.Sleep(100 * time.Millisecond) {
		if left = l.leftovers(); len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("%v after the workflow has ended this is left or wrong:\n%s", settleMax, lines(left, 20))
		}
	}
}

func (l *lane) leftovers() (left []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	snap := l.snapshot()
	for _, k := range snap.State().Keyspaces {
		for _, t := range k.Transits {
			left = append(left, "transit "+t.ID)
		}
	}
	for _, s := range snap.Shards() {
		sh, err := l.shard(&s)
		if err != nil {
			return append(left, err.Error())
		}
		streams, err := sh.(engine.Movable).Mover(0).Captures(ctx)
		if err = errors.Join(err, sh.Close()); err != nil {
			left = append(left, err.Error())
		}
		for _, id := range streams {
			left = append(left, "capture "+id+" on "+s.Name)
		}
		if l.engine == "postgres" {
			found, err := l.onShard(&s, standing)
			if err != nil {
				left = append(left, err.Error())
			} else if found != "" {
				left = append(left, s.Name+": "+found)
			}
		} else {
			left = append(left, l.sqliteStanding(s.Name)...)
		}
	}
	if len(left) > 0 {
		return left
	}
	if now := l.shardRelations(); now != l.relations {
		was := strings.Split(l.relations, "\n")
		for _, line := range strings.Split(now, "\n") {
			if !slices.Contains(was, line) {
				left = append(left, "new on a shard: "+line)
			}
		}
		if len(left) == 0 {
			left = append(left, fmt.Sprintf("the shards had\n%sand have\n%s", l.relations, now))
		}
	}
	for _, text := range l.doctor(ctx) {
		if !slices.Contains(l.usual, text) {
			left = append(left, text)
		}
	}
	rows, err := l.ops.Verify(ctx, admin.VerifyRequest{})
	if err != nil {
		left = append(left, err.Error())
	}
	bulk := int64(0)
	for _, v := range rows {
		if v.Error != "" || v.Orphans != 0 || v.Strangers != 0 {
			left = append(left, fmt.Sprintf("verify: %+v", v))
		}
		if v.Table == "public.bulk" {
			bulk += v.Rows
		}
	}
	if bulk != bulkRows && len(left) == 0 {
		left = append(left, fmt.Sprintf("the shards have %d rows of bulk, not %d", bulk, bulkRows))
	}
	return left
}

// doctor is what `cleave doctor` finds wrong.
func (l *lane) doctor(ctx context.Context) (wrong []string) {
	found, err := l.ops.Doctor(ctx, admin.DoctorRequest{})
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, f := range found {
		if f.Level == admin.LevelError || f.Level == admin.LevelWarning || f.Table != "" {
			wrong = append(wrong, fmt.Sprintf("doctor: %s %s %s %s", f.Level, f.Shard, f.Table, f.What))
		}
	}
	return wrong
}

// file is the path of a SQLite shard.
func (l *lane) file(shard string) string { return filepath.Join(l.folder, shard+".db") }

// sqliteNames are the names of all that a file has.
func (l *lane) sqliteNames(path string) []string {
	l.t.Helper()
	names, err := column(path, `SELECT type || ' ' || name FROM sqlite_schema ORDER BY 1`)
	if err != nil {
		l.t.Fatal(err)
	}
	return names
}

// sqliteStanding is what must be gone from a file when nothing goes on.
func (l *lane) sqliteStanding(shard string) []string {
	left, err := column(l.file(shard), `SELECT 'row of the log, of capture ' || capture FROM cleave_log
		UNION ALL SELECT 'row of the move ' || id FROM cleave_move
		UNION ALL SELECT 'row of a loaded table, of the move ' || id FROM cleave_loaded
		UNION ALL SELECT 'row of a loaded part, of the move ' || id FROM cleave_loaded_part
		UNION ALL SELECT 'capture ' || def FROM cleave_object WHERE kind = 'capture'
		UNION ALL SELECT 'prepared transaction ' || gid FROM cleave_prepared
		UNION ALL SELECT 'change of the prepared transaction ' || gid FROM cleave_change`)
	if err != nil {
		left = append(left, err.Error())
	}
	for i := range left {
		left[i] = shard + ": " + left[i]
	}
	return left
}

// column asks a SQLite file, past its engine.
func column(path, sql string) (list []string, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetBusyTimeout(10 * time.Second)
	err = sqlitex.ExecuteTransient(conn, sql, &sqlitex.ExecOptions{ResultFunc: func(s *sqlite.Stmt) error {
		list = append(list, s.ColumnText(0))
		return nil
	}})
	return list, err
}
