-- Schema changes of what is not there, or is something else than the statement says.
-- engines: postgres

-- messages
-- foreach e: TABLE | TABLE IF EXISTS
-- foreach q: nosuch ADD a int | nosuch RENAME TO b | nosuch RENAME COLUMN a TO b | nosuch RENAME CONSTRAINT a TO b | nosuch DROP a | nosuch ADD CONSTRAINT x CHECK (a > 1) | nosuch ADD CONSTRAINT x FOREIGN KEY (a) REFERENCES orders (nosuch) | nosuch SET SCHEMA public | nosuch OWNER TO current_user | nosuch.nosuch ADD a int | nosuch.nosuch RENAME TO b | public.nosuch ADD a int | nosuch ENABLE TRIGGER ALL | nosuch SET (fillfactor = 50) | nosuch ADD a nosuch DEFAULT nosuch() | nosuch INHERIT orders | nosuch VALIDATE CONSTRAINT x
ALTER ${e} ${q};
-- messages
-- foreach k: VIEW | MATERIALIZED VIEW | SEQUENCE
-- foreach e: nosuch | IF EXISTS nosuch | IF EXISTS nosuch.nosuch
-- foreach q: RENAME TO b | SET SCHEMA public | OWNER TO current_user
ALTER ${k} ${e} ${q};
-- messages
-- foreach q: VIEW IF EXISTS nosuch RENAME a TO b | VIEW IF EXISTS nosuch SET (security_barrier) | MATERIALIZED VIEW IF EXISTS nosuch RENAME a TO b | INDEX nosuch RENAME TO b | INDEX IF EXISTS nosuch RENAME TO b | INDEX IF EXISTS nosuch SET (fillfactor = 50) | SEQUENCE IF EXISTS nosuch RESTART | TYPE nosuch RENAME TO b | TYPE nosuch OWNER TO current_user | DOMAIN nosuch DROP CONSTRAINT IF EXISTS x | VIEW orders RENAME TO b | SEQUENCE orders RENAME TO b | MATERIALIZED VIEW orders RENAME TO b | MATERIALIZED VIEW orders OWNER TO current_user | INDEX orders SET (fillfactor = 50) | FOREIGN TABLE IF EXISTS nosuch RENAME TO b
ALTER ${q};
-- A migration goes on after it.
-- messages
-- block
BEGIN;
ALTER TABLE IF EXISTS nosuch ADD a int;
ALTER TABLE orders ADD IF NOT EXISTS extra int;
ALTER TABLE orders ADD IF NOT EXISTS extra int;
ALTER TABLE IF EXISTS nosuch.nosuch DROP a;
UPDATE orders SET extra = id;
ALTER VIEW IF EXISTS nosuch RENAME TO b;
SELECT sum(extra) FROM orders;
ALTER TABLE nosuch ADD a int;
SELECT sum(extra) FROM orders;
ROLLBACK;
-- end
-- What a table is renamed with.
-- messages
-- block
CREATE TABLE altered (a bigint PRIMARY KEY, b int) WITH (cleave.shard_key = 'a');
CREATE TABLE whole AS SELECT 1 AS a, 2 AS b;
CREATE INDEX altered_b ON altered (b);
CREATE INDEX whole_a ON whole (a);
CREATE VIEW seen AS SELECT * FROM altered;
CREATE SEQUENCE counted;
INSERT INTO altered SELECT i, i FROM generate_series(1, 9) AS i;
ALTER INDEX altered RENAME TO changed;
SELECT sum(a) FROM changed;
ALTER INDEX seen RENAME TO watched;
SELECT sum(a) FROM watched;
ALTER TABLE watched RENAME TO seen;
ALTER INDEX counted RENAME TO counts;
SELECT nextval('counts');
ALTER TABLE altered_b ADD x int;
ALTER TABLE counts ADD x int;
ALTER TABLE changed RENAME TO altered;
ALTER TABLE whole_a RENAME TO by_a;
ALTER INDEX by_a RENAME TO whole_a;
ALTER TABLE whole ADD s serial;
ALTER TABLE whole_s_seq RENAME TO numbered;
INSERT INTO whole VALUES (1, 1) RETURNING s;
CREATE MATERIALIZED VIEW made AS SELECT * FROM whole;
CREATE VIEW made_seen AS SELECT * FROM made;
ALTER MATERIALIZED VIEW made RENAME COLUMN b TO c;
ALTER MATERIALIZED VIEW made RENAME TO made2;
ALTER TABLE made2 RENAME TO made3;
SELECT * FROM made_seen;
DROP VIEW made_seen, seen;
DROP MATERIALIZED VIEW made3;
DROP TABLE altered, whole;
DROP SEQUENCE counts;
-- end
-- What cannot run inside a block.
-- messages
-- foreach b: SELECT 1 | SELECT count(*) FROM orders
-- foreach q: CREATE INDEX CONCURRENTLY ON orders (id) | CREATE INDEX CONCURRENTLY new ON orders (id) | DROP INDEX CONCURRENTLY nosuch | REINDEX TABLE CONCURRENTLY orders | VACUUM orders | VACUUM (FULL, ANALYZE) orders | DISCARD ALL | ALTER TABLE nosuch DETACH PARTITION orders CONCURRENTLY
${b}; ${q};
-- messages
-- block
BEGIN;
CREATE INDEX CONCURRENTLY ON orders (id);
ROLLBACK;
-- end
-- messages
-- foreach q: SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT current_setting('transaction_isolation'), count(*) FROM orders | SELECT 1; SET TRANSACTION ISOLATION LEVEL REPEATABLE READ | SET TRANSACTION READ ONLY; DELETE FROM orders | SET CONSTRAINTS ALL DEFERRED; SELECT count(*) FROM orders | SELECT 1; SET CONSTRAINTS ALL IMMEDIATE; SELECT 2
${q};
CREATE EXTENSION citext;
SELECT count(*) FROM orders WHERE status::citext OPERATOR(public.=) 'PAID';
SELECT id FROM orders WHERE tenant_id = 1 AND status::citext OPERATOR(public.~) 'A';
CREATE DOMAIN email AS citext CONSTRAINT email_check CHECK (VALUE OPERATOR(public.~) '@'::public.citext);
SELECT 'A@b'::email = 'a@B';
CREATE VIEW ci AS SELECT tenant_id, id FROM orders WHERE status::citext = 'Paid';
SELECT count(*) FROM ci;
ALTER VIEW ci RENAME TO cj;
COMMENT ON VIEW cj IS 'x';
GRANT SELECT ON cj TO PUBLIC;
SELECT * FROM cj WHERE tenant_id < 3;
DROP VIEW cj;
DROP TYPE IF EXISTS nosuch CASCADE;
DROP DOMAIN email CASCADE;
DROP EXTENSION citext;

-- Sharded and reference tables of the rows of a query. (The router warns that they have no primary key.)
-- block
BEGIN;
CREATE TABLE copied WITH (cleave.shard_key = 'tenant_id') AS SELECT tenant_id, id, note, qty * 2 AS double FROM orders;
SELECT count(*), sum(double) FROM copied;
CREATE TABLE counted (t, n) WITH (cleave.shard_key = 't') AS SELECT tenant_id, count(*)::numeric(10, 2) FROM orders GROUP BY 1;
SELECT * FROM counted ORDER BY t;
CREATE TABLE codes WITH (cleave.reference = true) AS SELECT id, 'c' || id AS code FROM orders WHERE tenant_id = 1;
SELECT count(*) FROM codes JOIN copied USING (id);
CREATE TABLE none WITH (cleave.shard_key = 'id') AS SELECT * FROM codes WITH NO DATA;
INSERT INTO none SELECT * FROM codes;
SELECT count(*) FROM none;
SELECT column_name, data_type, numeric_precision, is_nullable FROM information_schema.columns WHERE table_name = 'counted' AND column_name = 'n';
SAVEPOINT s;
CREATE TABLE copied WITH (cleave.shard_key = 'id') AS SELECT id FROM orders;
ROLLBACK;
-- end
-- block
SET search_path = nowhere, public;
CREATE TABLE on_the_path (tenant_id bigint PRIMARY KEY, a int) WITH (cleave.shard_key = 'tenant_id');
SELECT count(*) FROM on_the_path;
DROP TABLE on_the_path;
RESET search_path;
-- end
-- block
SET search_path = public, nowhere;
CREATE TABLE on_the_path (tenant_id bigint PRIMARY KEY, a int) WITH (cleave.shard_key = 'tenant_id');
SELECT count(*) FROM on_the_path;
DROP TABLE on_the_path;
RESET search_path;
-- end
