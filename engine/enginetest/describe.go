package enginetest

import (
	"fmt"
	"testing"

	"github.com/cleavedb/cleave/sqlstate"
)

func runDescribe(t *testing.T, h Harness) {
	s := h.Open(t)
	c := connect(t, s)
	c.do(`CREATE TABLE "Parent" ("Tenant" bigint NOT NULL, id integer NOT NULL, PRIMARY KEY ("Tenant", id))`,
		`CREATE TABLE "Child of" (
			"Tenant" bigint NOT NULL,
			"parent id" integer,
			note varchar(20) DEFAULT 'x',
			made timestamptz,
			"größe" uuid,
			ok boolean NOT NULL,
			raw bytea,
			day date,
			small smallint,
			at timestamp,
			CONSTRAINT child_pk PRIMARY KEY ("Tenant", "größe"),
			CONSTRAINT child_note UNIQUE (note),
			CONSTRAINT child_parent FOREIGN KEY ("Tenant", "parent id") REFERENCES "Parent" ("Tenant", id)
		)`,
		`CREATE UNIQUE INDEX "Child Idx" ON "Child of" (day, "Tenant")`,
		`CREATE INDEX child_plain ON "Child of" (small)`)

	tab, err := c.DescribeTable(t.Context(), "public", "Child of")
	if err != nil {
		t.Fatal(err)
	}
	same(t, "name", tab.Schema+"."+tab.Name, "public.Child of")
	var columns []string
	for _, col := range tab.Columns {
		columns = append(columns, fmt.Sprintf("%s %s %d %v %v", col.Name, col.Type, col.OID, col.NotNull, col.Deterministic))
		if (col.Default != "") != (col.Name == "note") || col.Identity || col.Generated {
			t.Errorf("column %+v", col)
		}
	}
	same(t, "columns", columns, []string{
		"Tenant bigint 20 true true", "parent id integer 23 false true", "note character varying(20) 1043 false true",
		"made timestamp with time zone 1184 false true", "größe uuid 2950 true true", "ok boolean 16 true true", "raw bytea 17 false true",
		"day date 1082 false true", "small smallint 21 false true", "at timestamp without time zone 1114 false true",
	})
	unique := map[string]string{}
	primary := ""
	for _, u := range tab.Unique {
		unique[u.Name] = fmt.Sprintf("%q", u.Columns)
		if u.Primary {
			primary = u.Name
		}
	}
	same(t, "unique", unique, map[string]string{
		"child_pk": `["Tenant" "größe"]`, "child_note": `["note"]`, "Child Idx": `["day" "Tenant"]`,
	})
	same(t, "primary", primary, "child_pk")
	same(t, "foreign keys", tab.ForeignKeys, `[{child_parent [Tenant parent id] public Parent [Tenant id]}]`)
	same(t, "guard", tab.Guard == nil, true)

	t.Run("rows", func(t *testing.T) {
		has := func() bool {
			tab, err := c.DescribeTable(t.Context(), "public", "Parent")
			if err != nil {
				t.Fatal(err)
			}
			return tab.HasRows
		}
		same(t, "empty", has(), false)
		c.do(`BEGIN`, `INSERT INTO "Parent" VALUES (1, 1)`)
		same(t, "one", has(), true)
		c.do(`ROLLBACK`)
		same(t, "none", has(), false)
	})
	t.Run("no such table", func(t *testing.T) {
		c.do(`BEGIN`)
		for _, name := range [][2]string{{"public", "child of"}, {"public", "parent"}, {"nowhere", "Parent"}, {"public", `"; DROP TABLE "Parent`}, {"public", ""}} {
			_, err := c.DescribeTable(t.Context(), name[0], name[1])
			if sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
				t.Fatalf("%q: got %v", name, err)
			}
		}
		same(t, "the transaction goes on", string(c.do(`SELECT 1`).status), "T")
		c.do(`COMMIT`)
	})
	t.Run("uncommitted", func(t *testing.T) {
		c.do(`BEGIN`, `CREATE TABLE fresh (id bigint PRIMARY KEY)`)
		tab, err := c.DescribeTable(t.Context(), "public", "fresh")
		if err != nil || len(tab.Columns) != 1 {
			t.Fatalf("got %+v, %v", tab, err)
		}
		c.do(`ROLLBACK`)
		if _, err = c.DescribeTable(t.Context(), "public", "fresh"); sqlstate.CodeOf(err) != sqlstate.UndefinedTable {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("altered", func(t *testing.T) {
		c.do(`ALTER TABLE "Child of" DROP COLUMN raw`, `ALTER TABLE "Child of" RENAME COLUMN ok TO fine`, `ALTER TABLE "Child of" ADD COLUMN extra text`)
		tab, err := c.DescribeTable(t.Context(), "public", "Child of")
		if err != nil {
			t.Fatal(err)
		}
		names := make([]string, 0, len(tab.Columns))
		for _, col := range tab.Columns {
			names = append(names, col.Name)
		}
		same(t, "columns", fmt.Sprintf("%q", names), `["Tenant" "parent id" "note" "made" "größe" "fine" "day" "small" "at" "extra"]`)
	})
}
