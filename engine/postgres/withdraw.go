package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/cleavedb/cleave/sqlstate"
)

// Bounds of the wait for statements that may have a publication in hand.
const (
	withdrawMax  = time.Second            // for those that can be seen
	withdrawLook = 5 * time.Millisecond   // between two looks
	withdrawRest = 100 * time.Millisecond // where other roles' statements cannot be seen
)

// withdraw takes the tables out of a publication that is dropped next, and waits for the statements that may have read of it before.
//
// An UPDATE or DELETE lists its table's publications as it begins, and looks each up (RelationBuildPublicationDesc in relcache.c). One that is
// dropped between the two fails it with XX000, "cache lookup failed for publication". An empty one is in no list, and is there for those who
// have an older list.
func (v *mover) withdraw(ctx context.Context, c *conn, name string) error {
	emptied := false
	err := v.transact(ctx, c, func() error {
		res, err := c.exec(ctx, `SELECT pg_catalog.format('ONLY %I.%I', n.nspname, t.relname) FROM pg_catalog.pg_publication AS p
			JOIN pg_catalog.pg_publication_rel AS r ON r.prpubid = p.oid JOIN pg_catalog.pg_class AS t ON t.oid = r.prrelid
			JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace WHERE p.pubname = `+literal(name)+` ORDER BY 1`)
		if err != nil || len(res.Rows) == 0 {
			return err
		}
		tables := make([]string, len(res.Rows))
		for i, row := range res.Rows {
			tables[i] = row[0].String
		}
		emptied = true
		_, err = c.exec(ctx, "SET LOCAL lock_timeout = '1s'; ALTER PUBLICATION "+ident(name)+" DROP TABLE "+strings.Join(tables, ", "))
		return err
	})
	switch sqlstate.CodeOf(err) {
	case sqlstate.LockNotAvailable, sqlstate.DeadlockDetected, sqlstate.UndefinedTable, sqlstate.UndefinedObject:
		// A command like VACUUM or CREATE INDEX CONCURRENTLY has a table, and may for hours: the publication is dropped as it is.
		return nil
	}
	if err != nil || !emptied {
		return err
	}
	return v.awaitStatements(ctx, c)
}

// awaitStatements waits until each statement that runs now in the database has ended, or has run for so long that it has begun.
func (v *mover) awaitStatements(ctx context.Context, c *conn) error {
	running := func() (map[string]bool, bool, error) {
		res, err := c.exec(ctx, `SELECT pid || ' ' || query_start::pg_catalog.text, state IS NULL FROM pg_catalog.pg_stat_activity
			WHERE datname = pg_catalog.current_database() AND pid <> pg_catalog.pg_backend_pid()
			AND (state IS NULL OR state = 'active' AND backend_type = 'client backend')`)
		if err != nil {
			return nil, false, err
		}
		now, hidden := map[string]bool{}, false
		for _, row := range res.Rows {
			if row[1].String == "t" {
				hidden = true
			} else {
				now[row[0].String] = true
			}
		}
		return now, hidden, nil
	}
	began := time.Now()
	first, hidden, err := running()
	if err != nil {
		return err
	}
	if hidden {
		if err := pause(ctx, withdrawRest); err != nil {
			return err
		}
	}
	for len(first) > 0 && time.Since(began) < withdrawMax {
		if err := pause(ctx, withdrawLook); err != nil {
			return err
		}
		now, _, err := running()
		if err != nil {
			return err
		}
		for statement := range first {
			if !now[statement] {
				delete(first, statement)
			}
		}
	}
	return nil
}
