package schema

import (
	"context"
	"strings"
	"testing"

	"github.com/cleavedb/cleave/internal/pgtest"
	"github.com/cleavedb/cleave/shardmap"
)

// TestDistributeReached: what the database had before, and would read one shard's rows from then on, keeps a table from being
// distributed; what cannot reach it does not.
func TestDistributeReached(t *testing.T) {
	c := newCluster(t, pgtest.Server(t), 2)
	ctx := context.Background()
	c.existing("purchase", "k bigserial PRIMARY KEY, v int")
	c.existing("country", "k bigserial PRIMARY KEY, v int")
	for _, sql := range []string{
		`CREATE TABLE "Odd name" (k bigserial PRIMARY KEY, v int)`,
		"CREATE TABLE log (t text)",
		"CREATE TABLE lonely (id int, y text)",
		// None of these reaches it.
		"CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (NEW.y); RETURN NEW; END'",
		"CREATE TRIGGER audit AFTER INSERT ON lonely FOR EACH ROW EXECUTE FUNCTION audit()",
		"CREATE FUNCTION nation() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM country'",
		"ALTER TABLE lonely ADD COLUMN n bigint DEFAULT nation()",
		"CREATE MATERIALIZED VIEW other AS SELECT count(*) FROM log",
		"CREATE FUNCTION unused() RETURNS bigint STABLE LANGUAGE sql AS 'SELECT count(*) FROM purchase'",
		"CREATE VIEW big AS SELECT * FROM purchase WHERE v > 5",
		"CREATE EXTENSION pg_trgm", // operators in C
		"CREATE RULE r AS ON DELETE TO log DO ALSO INSERT INTO lonely VALUES (1, 'gone')",
	} {
		c.query("shard-0", sql)
	}
	if _, err := Recover(ctx, RecoverOptions{Directory: c.dir, Connect: c.connect, Adopt: true}); err != nil {
		t.Fatal(err)
	}
	purchase := Becomes{TableName: public("purchase"), ShardKey: []string{"k"}}
	const fn = "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS "
	const trigger = "; CREATE TRIGGER f BEFORE INSERT ON lonely FOR EACH ROW EXECUTE FUNCTION f()"
	const unmade = "DROP TRIGGER f ON lonely; DROP FUNCTION f()"
	for _, s := range []struct{ make, drop, says string }{
		{"CREATE MATERIALIZED VIEW mv AS SELECT count(*) FROM purchase", "DROP MATERIALIZED VIEW mv", "materialized view public.mv reads public.purchase"},
		{"CREATE MATERIALIZED VIEW mv AS SELECT count(*) FROM big", "DROP MATERIALIZED VIEW mv", "materialized view public.mv reads public.purchase"},
		{"CREATE MATERIALIZED VIEW mv AS SELECT unused()", "DROP MATERIALIZED VIEW mv", "calls public.unused(), which names public.purchase"},
		{fn + "'BEGIN NEW.y := (SELECT count(*) FROM Purchase); RETURN NEW; END'" + trigger, unmade, "trigger f of public.lonely calls public.f(), which names public.purchase"},
		{fn + "'BEGIN NEW.y := (SELECT count(*) FROM \"purchase\"); RETURN NEW; END'" + trigger, unmade, "names public.purchase"},
		{fn + "'BEGIN NEW.y := unused(); RETURN NEW; END'" + trigger, unmade, "may call public.unused()"},
		{fn + "'BEGIN PERFORM 1 FROM big; RETURN NEW; END'" + trigger, unmade, "names public.purchase"},
		{fn + "'BEGIN EXECUTE ''SELECT 1 FROM pur'' || ''chase''; RETURN NEW; END'" + trigger, unmade, "runs texts (EXECUTE)"},
		{fn + `'BEGIN PERFORM 1 FROM U&"\0070urchase"; RETURN NEW; END'` + trigger, unmade, "numbers of their letters"},
		{"ALTER TABLE lonely ADD COLUMN z bigint DEFAULT unused()", "ALTER TABLE lonely DROP COLUMN z", "the default of column z of public.lonely calls public.unused()"},
		{"ALTER TABLE lonely ADD CONSTRAINT few CHECK (unused() < 100)", "ALTER TABLE lonely DROP CONSTRAINT few", "constraint few of public.lonely"},
		{"CREATE DOMAIN d AS int CHECK (unused() > VALUE); ALTER TABLE lonely ADD COLUMN z d", "DROP DOMAIN d CASCADE", "of column z of public.lonely"},
		{"CREATE RULE q AS ON INSERT TO log DO ALSO UPDATE purchase SET v = 1", "DROP RULE q ON log", "rule q of public.log reads public.purchase"},
		{"CREATE FUNCTION op(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM purchase'; CREATE OPERATOR @@@ (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = op)", "DROP FUNCTION op CASCADE",
			"operator @@@(bigint,bigint) calls public.op(), which names public.purchase"},
		{"CREATE FUNCTION et() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM purchase; END'; CREATE EVENT TRIGGER et ON ddl_command_end EXECUTE FUNCTION et()", "DROP EVENT TRIGGER et; DROP FUNCTION et",
			"event trigger et calls public.et()"},
		{"CREATE TYPE odd AS (a int); CREATE FUNCTION oddly(odd) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM purchase'; CREATE CAST (odd AS bigint) WITH FUNCTION oddly(odd)", "DROP TYPE odd CASCADE",
			"the cast from odd to bigint calls public.oddly()"},
		{"CREATE POLICY p ON log USING (EXISTS (SELECT FROM purchase))", "DROP POLICY p ON log", "policy p of public.log"},
	} {
		run := c.super // event triggers are superusers'
		if !strings.Contains(s.make, "EVENT TRIGGER") {
			run = func(shard, sql string) { c.query(shard, sql) }
		}
		run("shard-0", s.make)
		e := code(t, c.distribute(c.options(), purchase, ""), "0A000")
		if !strings.Contains(e.Message, s.says) || e.Hint == "" || !strings.Contains(e.Detail, s.says) {
			t.Errorf("%s: %s (%s)", s.make, e.Message, e.Detail)
		}
		run("shard-0", s.drop)
	}
	// A name that is no word; a reference table is read in whole, but not written.
	c.query("shard-0", fn+`'BEGIN NEW.y := (SELECT count(*) FROM "Odd name"); RETURN NEW; END'`+trigger)
	code(t, c.distribute(c.options(), Becomes{TableName: public("Odd name"), ShardKey: []string{"k"}}, ""), "0A000")
	c.query("shard-0", unmade)
	c.query("shard-0", fn+"'BEGIN INSERT INTO country VALUES (1, 2); RETURN NEW; END'"+trigger)
	e := code(t, c.distribute(c.options(), Becomes{TableName: public("country"), Reference: true}, ""), "0A000")
	if !strings.Contains(e.Message, "may write to public.country") {
		t.Error(e.Message)
	}
	c.query("shard-0", unmade)

	for _, b := range []Becomes{purchase, {TableName: public("country"), Reference: true}} {
		if err := c.distribute(c.options(), b, ""); err != nil {
			t.Fatal(err)
		}
		if is, _ := c.snap().Table("public", b.Name); is.Kind == shardmap.Whole {
			t.Errorf("%s is whole", b.Name)
		}
	}
	o := RecoverOptions{Directory: c.dir, Connect: c.connect, DryRun: true}
	if found := Reached(ctx, o, c.snap()); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	c.query("shard-0", "CREATE MATERIALIZED VIEW mv AS SELECT count(*) FROM purchase")
	if found := Reached(ctx, o, c.snap()); len(found) != 1 || !strings.Contains(found[0].What, "materialized view public.mv reads public.purchase") {
		t.Errorf("found %v", found)
	}
}
