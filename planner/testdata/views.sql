-- Views: those over sharded or reference tables are written out, others stay.
SELECT * FROM big_orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-->   text: SELECT * FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) AS "big_orders" WHERE tenant_id = 5
SELECT b.id FROM public.bigger AS b WHERE b.t = $1;
--> one shard, key ($1) [SELECT, read only, rows]
-->   text: SELECT b.id FROM (SELECT big_orders.tenant_id AS t, big_orders.id\n   FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) AS "big_orders") AS b WHERE b.t = $1
SELECT * FROM bigger b JOIN items i ON i.tenant_id = b.t WHERE b.t = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-->   text: SELECT * FROM (SELECT big_orders.tenant_id AS t, big_orders.id\n   FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) AS "big_orders") b JOIN items i ON i.tenant_id = b.t WHERE b.t = 5
SELECT * FROM note_bodies;
--> default shard [SELECT, read only, rows]
TABLE note_bodies;
--> default shard [SELECT, read only, rows]
WITH bigger AS (SELECT 1 AS t) SELECT * FROM bigger;
--> any shard [SELECT, read only, rows]
INSERT INTO note_bodies VALUES ('x');
--> default shard [INSERT]
UPDATE big_orders SET note = 'x' WHERE tenant_id = 5;
--> refused 0A000: writing through the view big_orders, which is over a sharded or reference table, is not supported
-->   hint: Write to the table itself.
SELECT * FROM ONLY bigger WHERE t = 5;
--> refused 0A000: ONLY before the view public.bigger is not supported
-->   hint: Leave ONLY out: a view has no children.
CREATE VIEW v AS SELECT * FROM big_orders;
--> schema change create view, all shards [CREATE VIEW]
CREATE VIEW v AS SELECT * FROM note_bodies;
--> schema change create view [CREATE VIEW]
CREATE VIEW v AS SELECT * FROM big_orders, notes;
--> schema change create view [CREATE VIEW]
CREATE OR REPLACE VIEW bigger AS SELECT * FROM notes;
--> schema change create view, all shards [CREATE VIEW]
-->   elsewhere: DROP VIEW IF EXISTS "public"."bigger"
CREATE VIEW v AS SELECT * FROM cleave.tables;
--> refused 0A000: table cleave.tables is answered by the router and cannot be in a view
-->   hint: Read it in a statement of its own.
CREATE VIEW v AS SELECT nextval('free_seq');
--> refused 0A000: nextval() of the sequence free_seq is evaluated by the router, which does not see where views, defaults and conditions are
-->   hint: A column's default can be nextval('free_seq') by itself.
ALTER VIEW bigger RENAME TO biggest;
--> schema change alter view, all shards [ALTER VIEW]
ALTER TABLE note_bodies RENAME TO bodies;
--> schema change alter view [ALTER TABLE]
DROP VIEW bigger, note_bodies;
--> schema change drop view, all shards [DROP VIEW]
-->   elsewhere: DROP VIEW IF EXISTS bigger, note_bodies
COMMENT ON VIEW note_bodies IS 'x';
--> schema change comment [COMMENT]
GRANT SELECT ON big_orders TO app;
--> schema change grant, all shards [GRANT]
CREATE MATERIALIZED VIEW m AS SELECT * FROM orders;
--> refused 0A000: a materialized view over sharded or reference tables is not supported
-->   hint: Use a view, or create a table and INSERT ... SELECT into it.
-- Functions that read no table, and triggers that call them.
SELECT shout(note) FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT public.shout(note) FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
CREATE TRIGGER t BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION touch();
--> schema change create trigger, all shards, alters [{public orders}] [CREATE TRIGGER]
CREATE TRIGGER t BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION other();
--> refused 0A000: a trigger that calls other() is not supported: the function is not known to read or write no table, so it could reach rows that other shards have
-->   hint: Create the function through the router, in SQL or PL/pgSQL, without naming tables in it.
CREATE TRIGGER "~~" BEFORE UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION touch();
--> refused 42501: trigger name "~~" is reserved: the shards' guards have to fire last
-->   hint: choose a name that begins with a letter
DROP TRIGGER "~cleave_guard" ON orders;
--> refused 42501: trigger "~cleave_guard" belongs to the router: it is the table's guard
CREATE FUNCTION lower(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
--> refused 0A000: a function with the name of one of PostgreSQL's own (lower) is not supported unless it is IMMUTABLE: the router could not tell their calls apart
-->   hint: Give it another name.

CREATE FUNCTION count(bigint) RETURNS bigint IMMUTABLE LANGUAGE sql AS 'SELECT $1 * 2';
--> refused 0A000: a function with the name of one of PostgreSQL's own aggregates or window functions (count) is not supported: the router could not tell their calls apart
-->   hint: Give it another name.
CREATE FUNCTION f(a int) RETURNS int LANGUAGE sql AS 'SELECT a';
--> schema change create function, all shards [CREATE FUNCTION]
SELECT b FROM big_orders b;
--> several shards [SELECT, read only, rows]
-->   text: SELECT (CASE WHEN "b" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("b".*)::"public"."big_orders" END) AS "b" FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) b
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT CASE WHEN b IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(b.*)::public.big_orders END AS b FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10) b
SELECT array_agg(b.*) FROM big_orders b WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
-->   text: SELECT array_agg((CASE WHEN "b" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("b".*)::"public"."big_orders" END)) FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) b WHERE tenant_id = 5
SELECT b, rank() OVER (PARTITION BY b.note ORDER BY b) FROM big_orders b;
--> several shards [SELECT, read only, rows]
-->   text: SELECT (CASE WHEN "b" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("b".*)::"public"."big_orders" END) AS "b", rank() OVER (PARTITION BY b.note ORDER BY (CASE WHEN "b" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("b".*)::"public"."big_orders" END)) FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) b
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty FROM public.orders t WHERE t.qty > 10
-->   shard text: SELECT CASE WHEN b IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(b.*)::public.big_orders END AS b, rank() OVER (PARTITION BY b.note ORDER BY CASE WHEN b IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(b.*)::public.big_orders END) FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM cleave_rel_1 orders WHERE orders.qty > 10) b
-->   why: its rows cannot be combined as they come from the shards
WITH c AS (SELECT x FROM big_orders x) SELECT c.x, (c.x).id FROM c;
--> several shards [SELECT, read only, rows]
-->   text: WITH c AS (SELECT (CASE WHEN "x" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("x".*)::"public"."big_orders" END) AS "x" FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) x) SELECT c.x, (c.x).id FROM c
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty FROM public.orders t WHERE t.qty > 10
-->   shard text: WITH c AS (SELECT CASE WHEN x IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(x.*)::public.big_orders END AS x FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM cleave_rel_1 orders WHERE orders.qty > 10) x) SELECT c.x, (c.x).id FROM c
-->   why: its rows cannot be combined as they come from the shards
SELECT note FROM big_orders AS note;
--> several shards [SELECT, read only, rows]
-->   text: SELECT note FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) AS note
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT note FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10) note
SELECT b.id, b FROM orders o JOIN bigger b ON b.t = o.tenant_id;
--> several shards [SELECT, read only, rows]
-->   text: SELECT b.id, (CASE WHEN "b" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("b".*)::"public"."bigger" END) AS "b" FROM orders o JOIN (SELECT big_orders.tenant_id AS t, big_orders.id\n   FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) AS "big_orders") b ON b.t = o.tenant_id
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT b.id, CASE WHEN b IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(b.*)::public.bigger END AS b FROM orders o JOIN (SELECT big_orders.tenant_id AS t, big_orders.id FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10) big_orders) b ON b.t = o.tenant_id
SELECT n FROM note_bodies n;
--> default shard [SELECT, read only, rows]
SELECT b FROM big_orders b ORDER BY b.tenant_id DESC, b.id LIMIT 3;
--> several shards [SELECT, read only, rows]
-->   text: SELECT (CASE WHEN "b" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("b".*)::"public"."big_orders" END) AS "b" FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) b ORDER BY b.tenant_id DESC, b.id LIMIT 3
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT CASE WHEN b IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(b.*)::public.big_orders END AS b, b.tenant_id AS cleave_key_1, b.id AS cleave_key_2 FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10) b ORDER BY b.tenant_id DESC, b.id LIMIT 3
-->   combine: merge by column -2 desc, -1, limit 3, hide 2
SELECT DISTINCT x FROM big_orders x ORDER BY x;
--> several shards [SELECT, read only, rows]
-->   text: SELECT DISTINCT (CASE WHEN "x" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("x".*)::"public"."big_orders" END) AS "x" FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) x ORDER BY (CASE WHEN "x" IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW("x".*)::"public"."big_orders" END)
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT CASE WHEN x IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(x.*)::public.big_orders END AS x FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10) x ORDER BY CASE WHEN x IS DISTINCT FROM NULL AND 'cleave_view_row' IS NOT NULL THEN ROW(x.*)::public.big_orders END
-->   combine: merge by column 1, unique by 1

-- WITH of a view changes no rows.
CREATE VIEW v AS WITH n AS (INSERT INTO orders VALUES (5, 1, 'x', 1, 1) RETURNING *) SELECT * FROM n;
--> refused 0A000: views must not contain data-modifying statements in WITH
CREATE VIEW v AS WITH n AS (UPDATE orders SET note = 'x' WHERE tenant_id = 5 RETURNING *) SELECT * FROM n;
--> refused 0A000: views must not contain data-modifying statements in WITH
CREATE TEMP VIEW v AS WITH n AS (DELETE FROM notes RETURNING *) SELECT * FROM n;
--> refused 0A000: views must not contain data-modifying statements in WITH
CREATE MATERIALIZED VIEW v AS WITH n AS (DELETE FROM notes RETURNING *) SELECT * FROM n;
--> refused 0A000: materialized views must not use data-modifying statements in WITH
