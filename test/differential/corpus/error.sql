-- Wrong SQL: the error's code, words and position are PostgreSQL's.
-- engines: postgres

-- messages
-- foreach q: SELEC 1 | SELECT * FROM | SELECT * FROM orders WHERE | SELECT FROM WHERE | SELECT nosuch FROM orders | SELECT o.nosuch FROM orders o | SELECT x.id FROM orders o | SELECT * FROM nosuch | SELECT * FROM nosuch.orders | SELECT nosuch(1) FROM orders | SELECT id FROM orders ORDER BY nosuch | SELECT id FROM orders GROUP BY id ORDER BY qty | SELECT id, qty FROM orders GROUP BY id | SELECT sum(sum(qty)) FROM orders | SELECT id FROM orders WHERE sum(qty) > 1 | SELECT qty + status FROM orders | SELECT id FROM orders WHERE qty | SELECT id FROM orders WHERE status = 1 | SELECT id FROM orders WHERE tenant_id = 'x' | SELECT id FROM orders LIMIT x | SELECT DISTINCT id FROM orders ORDER BY qty | SELECT id FROM orders UNION SELECT id, qty FROM orders | SELECT id FROM orders UNION SELECT status FROM orders | SELECT * FROM orders o JOIN items i USING (nosuch) | SELECT id FROM orders, items | SELECT CAST(qty AS nosuch) FROM orders | SELECT 'abc'::integer FROM orders | SELECT (SELECT id, qty FROM orders) FROM items | SELECT id FROM orders WHERE id IN (SELECT id, qty FROM items) | SELECT count(DISTINCT id ORDER BY qty) FROM orders | SELECT rank() FROM orders | SELECT lag(qty) OVER w FROM orders | WITH x AS (SELECT 1) SELECT * FROM y, orders | SELECT 1 FROM orders o, orders o | SELECT "ID" FROM orders | SELECT id FROM "Orders" | SELECT 1 / 0 FROM orders | SELECT id FROM orders FETCH FIRST ROWS WITH TIES | SELECT ALL DISTINCT id FROM orders | SELECT id FROM orders HAVING id > 1 | SELECT upper(id) FROM orders | SELECT coalesce(qty, status) FROM orders | SELECT CASE WHEN qty THEN 1 END FROM orders | SELECT ARRAY[1, 'x'] FROM orders | SELECT qty::boolean::date FROM orders | SELECT row(1, 2) = row(1) FROM orders | SELECT * FROM orders WHERE (tenant_id, id) = (1) | SELECT extract(nosuch FROM at) FROM orders | SELECT id FROM orders WHERE status LIKE 3 | SELECT max() FROM orders | SELECT max(*) FROM orders | SELECT id FROM orders FOR UPDATE OF nosuch | SELECT count(*) FROM orders FOR UPDATE | TABLE nosuch | SELECT id FROM orders TABLESAMPLE nosuch (1) | SELECT id FROM LATERAL orders | SELECT interval 'x' FROM orders | SELECT date '2024-02-30' FROM orders
${q};
-- messages
-- foreach q: INSERT INTO nosuch VALUES (1) | INSERT INTO orders (tenant_id, nosuch) VALUES (1, 2) | INSERT INTO orders (tenant_id, id) VALUES (1) | INSERT INTO orders (tenant_id) VALUES (1, 2) | INSERT INTO orders (tenant_id, tenant_id) VALUES (1, 2) | INSERT INTO orders VALUES (1, 2, 3, 'x') | INSERT INTO orders (tenant_id, id) VALUES ('x', 1) | INSERT INTO orders (tenant_id, id) VALUES (1, 1) | INSERT INTO orders (tenant_id, id) VALUES (1, NULL) | INSERT INTO orders (tenant_id, id) SELECT 1 | INSERT INTO orders (tenant_id, id) SELECT id, nosuch FROM items | INSERT INTO orders (tenant_id, id) VALUES (1, 2) RETURNING nosuch | INSERT INTO orders (tenant_id, id) VALUES (1, 2) ON CONFLICT (nosuch) DO NOTHING | INSERT INTO orders (tenant_id, id) VALUES (1, 2) ON CONFLICT (status) DO NOTHING | INSERT INTO orders (tenant_id, id, qty) VALUES (1, 9, 'x') | UPDATE nosuch SET a = 1 | UPDATE orders SET nosuch = 1 | UPDATE orders SET qty = 'x' | UPDATE orders SET qty = status | UPDATE orders SET qty = 1 WHERE nosuch = 1 | UPDATE orders SET id = 1 WHERE tenant_id = 1 | UPDATE orders SET qty = 1 RETURNING nosuch | UPDATE orders o SET o.qty = 1 | UPDATE orders SET (qty, id) = (1) | UPDATE orders SET qty = 1 FROM nosuch | DELETE FROM nosuch | DELETE FROM orders WHERE nosuch | DELETE FROM orders WHERE qty | DELETE FROM orders USING nosuch WHERE true | DELETE FROM orders RETURNING nosuch | DELETE orders | INSERT orders VALUES (1) | UPDATE orders qty = 1 | TRUNCATE nosuch | COPY nosuch TO STDOUT | DROP TABLE nosuch | CREATE INDEX ON nosuch (a) | CREATE INDEX ON orders (nosuch) | EXPLAIN SELECT nosuch FROM orders | PREPARE x AS SELECT nosuch FROM orders | EXECUTE nosuch | DEALLOCATE nosuch | FETCH 1 FROM nosuch | SET nosuch = 1 | SHOW nosuch | SET timezone = 'nosuch' | RELEASE nosuch | ROLLBACK TO nosuch | BEGIN ISOLATION LEVEL nosuch | VALUES (1), (1, 2) | CREATE TABLE orders (a integer) | CREATE SCHEMA public
${q};
-- messages
-- params: 1
SELECT id FROM orders WHERE nosuch = $1;
-- messages
-- params: x
SELECT id FROM orders WHERE tenant_id = $1;
-- messages
-- params: x
SELECT id FROM orders WHERE qty = $1;
-- messages
-- params: 1 | 2
SELECT id FROM orders WHERE qty = $1;
-- messages
-- params: 1
SELECT id FROM orders WHERE qty = $1 AND id = $2;
-- messages
-- params: 1
SELECT $1 FROM orders WHERE status = $1 AND qty = $1;
-- messages
-- params: 99999999999
SELECT id FROM orders WHERE qty = $1;
-- The router finds this itself, without its place.
SELECT $1 FROM orders;
-- Functions that nobody has: PostgreSQL's own words.
-- messages
-- foreach q: SELECT nosuch() | SELECT id FROM orders WHERE tenant_id = 1 AND nosuch(id, 'x') > 1 | SELECT nosuch.f(id) FROM orders | INSERT INTO orders (tenant_id, id) VALUES (1, nosuch(2)) | UPDATE orders SET qty = nosuch(qty, $$x$$) WHERE id = 1 | DELETE FROM orders WHERE nosuch(note) | SELECT count(*) FROM orders o JOIN items i ON nosuch(o.id) = i.id | SELECT * FROM nosuch(1) | SELECT o.id, nosuch(wrong) FROM orders o | WITH x AS (SELECT nosuch(1)) SELECT * FROM x, orders | SELECT id FROM orders OPERATOR(public.=) 1 | SELECT nosuch(VARIADIC ARRAY[1]) FROM countries
${q};
-- messages
-- params: 1
SELECT nosuch($1) FROM orders;
-- block
BEGIN;
SELECT count(*) FROM orders WHERE tenant_id = 1;
SELECT nosuch(id) FROM orders WHERE tenant_id = 1;
SELECT 1;
ROLLBACK;
-- end

-- Places in a text to which the router added columns and values.
CREATE TABLE made (tenant_id bigint, id bigserial, note text, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id');
-- messages
-- foreach q: VALUES (1, nosuch) | VALUES (1, 'ä') RETURNING nosuch | VALUES (1, 'ä'), (2, nosuch) | VALUES (1, 'ä'), (2, 'x'), (3, 'x') RETURNING id, nosuch | VALUES (1, 'x') ON CONFLICT (nosuch) DO NOTHING | SELECT tenant_id, nosuch FROM orders | SELECT tenant_id, 'x' FROM orders WHERE nosuch = 1 | SELECT 1, 'x' FROM nosuch
INSERT INTO made (tenant_id, note) ${q};
-- messages
INSERT INTO made VALUES (1, DEFAULT, nosuch);
-- messages
INSERT INTO made VALUES (1, nextval('made_id_seq'), nosuch);
-- messages
SELECT nextval('made_id_seq'), nosuch;
DROP TABLE made;
-- Places in the text of EXECUTE for its arguments, in that of PREPARE for the statement.
-- messages
-- block
CREATE TABLE planned (k bigint PRIMARY KEY, a integer, d date, v varchar(5)) WITH (cleave.shard_key = 'k');
INSERT INTO planned SELECT i, i FROM generate_series(1, 9) AS i;
PREPARE one (integer) AS SELECT a + $1 FROM planned WHERE k = 1;
PREPARE all_rows (integer) AS SELECT a + $1 FROM planned ORDER BY 1;
PREPARE of_key AS SELECT a FROM planned WHERE k = $1;
PREPARE put (bigint, integer, date, varchar) AS INSERT INTO planned VALUES ($1, $2, $3, $4);
PREPARE puts AS INSERT INTO planned (k, a, d, v) VALUES ($1, $2, $3, $4), ($1 + 1, $2, $3, $4);
SELECT 'ä'; PREPARE later AS SELECT a FROM planned ORDER BY a;
EXECUTE one('x');
  EXECUTE one( 'ä' );
EXECUTE all_rows('x');
SELECT 'ä'; EXECUTE all_rows('x');
EXECUTE of_key('x');
EXECUTE of_key('99999999999999999999');
EXECUTE of_key(99999999999999999999);
EXECUTE put(100,2,'x','a');
EXECUTE put(100, 2, 'today', 'abcdefgh');
EXECUTE put(100,'ä' || 'x',nosuch,'a');
EXECUTE puts(100, 2, '2020-02-30', 'a');
PREPARE bad(integer,  nosuch) AS SELECT $1;
SELECT 'ä'; PREPARE bad(nosuch, integer[]) AS SELECT $1;
ALTER TABLE planned DROP COLUMN v;
EXECUTE put(100, 2, '2020-02-28', 'a');
EXECUTE puts(100, 2, '2020-02-28', 'a');
SELECT 1; EXECUTE puts(100, 2, '2020-02-28', 'a');
ALTER TABLE planned RENAME a TO b;
EXECUTE one(1);
 EXECUTE all_rows(1);
SELECT 1; EXECUTE later;
ALTER TABLE planned RENAME TO meant;
EXECUTE one(1);
DROP TABLE meant;
DEALLOCATE ALL;
-- end
-- messages
SELECT E'\xff';
SELECT E'a\000b';
SELECT count(*) FROM orders WHERE status = E'\xc3\x28';
