-- What a hostile reader found: numbers that casts round, names of outputs, what is run once for all rows, words for times, types and collations.
-- engines: postgres

-- a cast rounds
-- foreach k: = 4.5::bigint | = CAST(4.5 AS int) | IN (4.5::bigint, 7) | = ANY (ARRAY[4.5, 7]::bigint[]) | = -'-5' | = 5.0::bigint
SELECT tenant_id, id FROM orders WHERE tenant_id ${k} ORDER BY 1, 2;
SELECT o.tenant_id, o.id FROM orders o JOIN (VALUES (4.5::bigint), (6::bigint)) v(k) ON v.k = o.tenant_id ORDER BY 1, 2;
DELETE FROM orders WHERE tenant_id = 4.5::bigint RETURNING tenant_id, id;
CREATE TABLE narrow (k smallint PRIMARY KEY, v int) WITH (cleave.shard_key = 'k');
SELECT k FROM narrow WHERE k IN ('32768', 1);
SELECT k FROM narrow WHERE k >= '1e4';
DROP TABLE narrow;

-- DISTINCT ON means outputs first
SELECT DISTINCT ON (tenant_id) status AS tenant_id, id FROM orders ORDER BY tenant_id, id;
SELECT count(*) FROM (SELECT DISTINCT ON (tenant_id) status AS tenant_id FROM orders) x;
SELECT DISTINCT ON (id) tenant_id AS id FROM orders ORDER BY id;
-- outputs without a name
SELECT count(*) FROM customers c WHERE c.email = 'ada@y.net' AND EXISTS (SELECT 1 FROM (SELECT email COLLATE "C" FROM (VALUES ('cy@y.net')) v(email)) s, customers i(mail) WHERE i.mail = email);
SELECT id FROM orders o WHERE o.tenant_id = 5 AND (SELECT count(*) FROM (SELECT CASE WHEN false THEN 0 ELSE tenant_id END FROM (VALUES (12)) v(tenant_id)) s, items i(tid) WHERE i.tid = tenant_id) = (SELECT count(*) FROM items WHERE tenant_id = 12);
CREATE FUNCTION two(a int, OUT x int, OUT y text) IMMUTABLE LANGUAGE sql AS $$ SELECT a, 'y' || a $$;
SELECT (two(id)).*, tenant_id FROM orders ORDER BY tenant_id, id;
SELECT (two(id)).*, tenant_id FROM orders ORDER BY 3 DESC, 1 LIMIT 7;
DROP FUNCTION two(int);

-- once for all rows; a subquery in FROM without WITH is evaluated again for each row if the plan puts it inside of a nested loop
-- foreach s: SELECT DISTINCT (SELECT random()) FROM orders | WITH x AS (SELECT random() AS r) SELECT DISTINCT x.r FROM orders, x | SELECT DISTINCT u FROM orders CROSS JOIN gen_random_uuid() u | SELECT DISTINCT (SELECT clock_timestamp()) FROM orders | WITH x AS (SELECT random() AS u) SELECT u FROM orders, x UNION SELECT u FROM items, (SELECT 7.0::float8 AS u) y
-- shape
${s};
SELECT count(DISTINCT name) FROM orders, (SELECT name FROM countries LIMIT 1) c;
-- block
BEGIN;
INSERT INTO orders (tenant_id, id, note) SELECT tenant_id, id + 100, (SELECT random()::text) FROM items;
UPDATE orders SET status = (SELECT random()::text);
SELECT count(DISTINCT note), count(DISTINCT status) FROM orders WHERE id > 100;
MERGE INTO orders o USING items i ON o.tenant_id = i.tenant_id AND o.id = i.id + 100 WHEN MATCHED THEN UPDATE SET note = (SELECT clock_timestamp()::text);
SELECT count(DISTINCT note) FROM orders WHERE id > 100;
ROLLBACK;
-- end

-- words for times
CREATE TABLE timed (k bigint PRIMARY KEY, a timestamptz, d date, t text, ts timestamp) WITH (cleave.shard_key = 'k');
-- block
BEGIN;
INSERT INTO timed (k, a) VALUES (1, 'now');
INSERT INTO timed (k, a) VALUES (2, 'now');
INSERT INTO timed (k, a, t) VALUES (3, ' NOW ', 'now'), (4, now(), 'now'), (5, 'now'::timestamptz, 'x'), (6, timestamptz 'now', 'today');
INSERT INTO timed (k, a) SELECT i, 'now' FROM generate_series(7, 12) AS i;
UPDATE timed SET ts = 'now', d = 'today';
UPDATE timed SET (a, t) = ('now', t) WHERE k IN (1, 2);
INSERT INTO timed (k) VALUES (1), (2), (3) ON CONFLICT (k) DO UPDATE SET a = 'now', ts = 'now'::timestamp;
SELECT count(DISTINCT a), count(DISTINCT ts), count(DISTINCT d), count(*) FILTER (WHERE t = 'now'), bool_and(a = now()), bool_and(a = 'now'), bool_and(ts <= 'now') FROM timed;
UPDATE timed SET a = COALESCE(NULLIF(a, 'now'), 'now'), ts = GREATEST('now', ts), d = CASE WHEN k > 3 THEN 'today' ELSE d END;
SELECT count(DISTINCT a), count(DISTINCT ts), count(DISTINCT d), bool_and(a = now()), bool_and(COALESCE(a, 'now') = now()) FROM timed;
SELECT k FROM timed WHERE a = 'now' AND d IN ('today', '2020-01-01') AND a BETWEEN 'yesterday' AND 'tomorrow' ORDER BY k;
SELECT count(*) FROM timed WHERE k = 3 AND a = 'now';
ROLLBACK;
-- end
-- params: 1 | 2 | 3 | now
-- types: 20 20 20 1184
INSERT INTO timed (k, a) VALUES ($1, $4), ($2, $4), ($3, $4);
SELECT count(DISTINCT a) FROM timed;
DROP TABLE timed;

-- literals of rows that move; statements without rows
CREATE TABLE bits (k bigint PRIMARY KEY, b bit(3), v varbit(2), nm name) WITH (cleave.shard_key = 'k');
INSERT INTO bits VALUES (1, '000', '1', 'B'), (2, '001', '0', 'a'), (3, '010', '', 'c'), (4, NULL, NULL, 'A');
UPDATE bits SET k = k + 20, b = '101', v = '11' RETURNING *;
UPDATE bits SET k = k + 20, b = '1011';
UPDATE bits SET k = k + 20 WHERE k > 22 RETURNING k, (SELECT count(*) FROM orders), (SELECT max(id) FROM countries);
INSERT INTO bits (k) SELECT tenant_id + 60 FROM items ORDER BY 1 LIMIT 1 RETURNING k, (SELECT count(*) FROM countries);
INSERT INTO bits (k, b) SELECT k + 40, '110' FROM bits ORDER BY k LIMIT 2;
CREATE COLLATION by_de (provider = icu, locale = 'de');
SELECT k FROM bits ORDER BY nm COLLATE by_de, k;
SELECT k FROM bits ORDER BY nm COLLATE by_de DESC NULLS LAST LIMIT 3;
DROP COLLATION by_de;
CREATE FUNCTION frozen() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'frozen' USING ERRCODE = 'P0777'; END $$;
CREATE TRIGGER b_frozen BEFORE INSERT OR UPDATE OR DELETE ON bits FOR EACH STATEMENT EXECUTE FUNCTION frozen();
-- foreach s: INSERT INTO bits (k) SELECT id FROM orders WHERE id < 0 LIMIT 4 | UPDATE bits SET k = k + 1 WHERE k < 0 | DELETE FROM bits WHERE k < 0
${s};
DROP TABLE bits;
DROP FUNCTION frozen();
CREATE DOMAIN dm AS varchar(5);
CREATE TABLE typed (k bigint PRIMARY KEY, d dm) WITH (cleave.shard_key = 'k');
INSERT INTO typed VALUES (1, 'a'), (2, 'b'), (3, 'a');
SELECT pg_typeof(d), pg_typeof(max(d)), count(*) FROM typed GROUP BY d;
DROP TABLE typed;
DROP DOMAIN dm;

-- counts of other types
-- params: 70000
-- types: 23
SELECT tenant_id, id FROM orders ORDER BY 1, 2 LIMIT $1::smallint;

-- other columns are an error before anything is written
-- foreach d: DROP COLUMN a | ADD COLUMN b text | RENAME COLUMN a TO z
-- block
DROP TABLE IF EXISTS replanned;
CREATE TABLE replanned (k bigint PRIMARY KEY, a int) WITH (cleave.shard_key = 'k');
PREPARE one AS INSERT INTO replanned (k) VALUES ($1) RETURNING *;
PREPARE two AS INSERT INTO replanned (k) VALUES ($1), ($1 + 1) RETURNING *;
EXECUTE one(1);
EXECUTE two(11);
ALTER TABLE replanned ${d};
EXECUTE one(2);
EXECUTE two(12);
SELECT k FROM replanned ORDER BY k;
DEALLOCATE ALL;
DROP TABLE replanned;
-- end
