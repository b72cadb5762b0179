-- Statements that write in more than one place, and how they are cut.

-- engines: postgres
-- One shard: as they are.
WITH gone AS (DELETE FROM orders WHERE tenant_id = 3 AND id = 1 RETURNING *) INSERT INTO items (tenant_id, id, sku) SELECT tenant_id, id + 500, note FROM gone RETURNING *;
WITH put AS (INSERT INTO orders (tenant_id, id, note) VALUES (3, 501, 'x') RETURNING tenant_id, id) SELECT * FROM put;
WITH up AS (UPDATE orders SET qty = 1 WHERE tenant_id = 4 RETURNING id, tenant_id) SELECT count(*), max(id) FROM up;
MERGE INTO orders o USING (VALUES (3, 1, 'm'), (3, 777, 'n')) AS v(t, i, n) ON o.tenant_id = 3 AND o.id = v.i WHEN MATCHED THEN UPDATE SET note = v.n WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (3, v.i, v.n);
-- Tables made of queries.
-- block
CREATE TABLE made1 AS SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id;
SELECT * FROM made1 ORDER BY 1;
DROP TABLE made1;
SELECT status, sum(qty) AS total INTO made2 FROM orders GROUP BY status;
SELECT * FROM made2 ORDER BY 1;
DROP TABLE made2;
CREATE TABLE made3 (a, b) AS SELECT o.tenant_id, i.sku FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id < 3;
SELECT a, b FROM made3 ORDER BY 1, 2;
DROP TABLE made3;
CREATE TABLE made4 AS SELECT * FROM orders WITH NO DATA;
SELECT * FROM made4;
DROP TABLE made4;
CREATE TEMP TABLE made5 AS SELECT o.tenant_id, i.sku, o.price, o.at, o.paid, NULL AS nothing FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id < 3;
SELECT * FROM orders, nosuchp;
UPDATE orders SET qty = 1 FROM nosuchp;
CREATE VIEW nosuchv AS SELECT * FROM nosuchp;
SELECT * FROM made5 ORDER BY 1, 2, 3;
SELECT count(*), sum(qty) AS total INTO TEMP made6 FROM orders;
SELECT * FROM made6, countries ORDER BY id;
CREATE TEMP TABLE made7 (a) ON COMMIT DELETE ROWS AS SELECT id FROM orders;
SELECT count(*) FROM made7;
CREATE TEMP TABLE made8 AS SELECT * FROM orders ORDER BY tenant_id, id LIMIT 5 WITH NO DATA;
SELECT * FROM made8;
DROP TABLE made5, made6, made7, made8;
-- end
-- The schema and rows in one transaction.
-- block
BEGIN;
ALTER TABLE orders ADD COLUMN extra integer, ADD COLUMN word text DEFAULT 'w';
UPDATE orders SET extra = id * qty, word = CASE WHEN id > 2 THEN note END;
SELECT tenant_id, id, extra, word FROM orders ORDER BY 1, 2;
ALTER TABLE orders ALTER extra TYPE bigint;
SELECT sum(extra), count(DISTINCT word) FROM orders;
SELECT word, count(*) FROM orders GROUP BY word ORDER BY 1;
SAVEPOINT a;
DELETE FROM orders WHERE extra IS NULL OR word IS NULL;
ALTER TABLE orders ALTER extra SET NOT NULL;
ROLLBACK TO a;
SELECT count(*) FROM orders;
CREATE TABLE made9 AS SELECT o.tenant_id, i.sku, o.extra FROM orders o JOIN items i ON i.order_id = o.id WHERE o.id < 3;
INSERT INTO made9 SELECT tenant_id, word, extra FROM orders;
SELECT * FROM made9 ORDER BY 1, 2, 3;
UPDATE orders SET word = m.s FROM (SELECT tenant_id, max(sku) AS s FROM made9 GROUP BY tenant_id) AS m WHERE m.tenant_id = orders.tenant_id;
SELECT o.word, i.sku, c.code FROM orders o JOIN items i ON i.sku = o.word LEFT JOIN countries c ON c.id = o.id ORDER BY 1, 2, 3;
DELETE FROM items WHERE order_id IN (SELECT id FROM orders WHERE extra > 5) RETURNING tenant_id, id;
UPDATE orders SET tenant_id = tenant_id + 100, extra = 0;
INSERT INTO countries (id, code) SELECT 1000 + count(*), 'x' FROM orders RETURNING code;
SELECT max(o.tenant_id), max(c.id) FROM orders o, countries c;
SELECT nosuch FROM orders;
SELECT count(*) FROM orders;
ROLLBACK;
-- end
-- block
BEGIN;
CREATE TYPE feeling AS ENUM ('low', 'high');
ALTER TABLE orders ADD COLUMN feels feeling;
UPDATE orders SET feels = 'high' WHERE id = 1;
SELECT DISTINCT feels::text FROM orders ORDER BY 1;
COMMIT;
SELECT feels, count(*) FROM orders GROUP BY feels ORDER BY feels;
ALTER TABLE orders DROP COLUMN feels;
DROP TYPE feeling;
-- end
-- block
BEGIN;
UPDATE orders SET note = 'moved' WHERE qty > 3;
SELECT note, qty INTO made10 FROM orders WHERE qty > 2;
SELECT * FROM made10 ORDER BY qty, note;
DROP TABLE made10;
COMMIT;
SELECT count(*) FROM orders WHERE note = 'moved';
-- end
-- Keys that rows take from each other.
UPDATE customers SET email = CASE email WHEN 'ann@x.org' THEN 'bob@x.org' ELSE 'ann@x.org' END WHERE email IN ('ann@x.org', 'bob@x.org');
UPDATE orders SET tenant_id = tenant_id + 1;
UPDATE orders SET tenant_id = 3 WHERE tenant_id IN (1, 2, 3) AND id = 1;
UPDATE orders SET tenant_id = 3 WHERE tenant_id = 2 AND id = 1;
UPDATE orders SET tenant_id = tenant_id + 100;
WITH n AS (INSERT INTO orders (tenant_id, id, note) VALUES (5, 601, 'x'), (5, 602, 'y') RETURNING tenant_id, id) INSERT INTO items (tenant_id, id, sku) SELECT n.tenant_id, n.id, 'of ' || n.id FROM n RETURNING tenant_id, sku;
-- params: 6 | 603
WITH n AS (INSERT INTO orders VALUES ($1, $2) RETURNING *) INSERT INTO items (tenant_id, id) SELECT n.tenant_id, n.id FROM n;
WITH u AS (UPDATE orders SET note = 'u' WHERE tenant_id = 4 RETURNING *) UPDATE items i SET sku = u.note FROM u WHERE i.tenant_id = u.tenant_id AND i.id = u.id;
WITH d AS (DELETE FROM items WHERE tenant_id = 2 RETURNING tenant_id AS t, order_id AS o) DELETE FROM orders USING d WHERE orders.tenant_id = d.t AND orders.id = d.o;
WITH d AS (DELETE FROM items WHERE tenant_id = 2 RETURNING tenant_id) SELECT o.id, (SELECT count(*) FROM d) FROM orders o JOIN d USING (tenant_id);
WITH d AS (DELETE FROM items i USING orders o WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 7 RETURNING o.tenant_id, i.id) INSERT INTO visits (region, visitor) SELECT 'x', id FROM d;
-- Code that names tables of the default shard only.
-- block
BEGIN;
DO $$ DECLARE n integer; BEGIN SELECT count(*) INTO n FROM settings; UPDATE settings SET value = 'n' || n WHERE id = 1; INSERT INTO settings (id, name) VALUES (900, 'of do'); IF n > 100000 THEN RAISE EXCEPTION 'many'; END IF; END $$;
SELECT value FROM settings WHERE id = 1;
SELECT count(*) FROM settings WHERE id = 900;
ROLLBACK;
-- end
DO $$ BEGIN PERFORM 1/0; END $$;
DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '22012'; END $$;
DO LANGUAGE plpgsql $$ DECLARE a int[] := '{1,2,3}'; BEGIN FOR i IN 1..3 LOOP a[i] := a[i] * 2; END LOOP; ASSERT a[3] = 6; END $$;
DO $$ BEGIN UPDATE orders SET qty = 1; END $$;
DO $$ BEGIN EXECUTE 'SELECT 1'; END $$;
