-- Transactions over several shards: each block is one session's; the tables are compared at its end.

-- foreach end: COMMIT | ROLLBACK
-- block
BEGIN;
INSERT INTO orders (tenant_id, id, qty) VALUES (900, 1, 1);
INSERT INTO orders (tenant_id, id, qty) VALUES (901, 1, 2);
SELECT tenant_id, qty FROM orders WHERE tenant_id IN (900, 901, 902);
UPDATE orders SET qty = qty + 10 WHERE tenant_id = 900;
UPDATE orders SET qty = qty + 10 WHERE tenant_id = 901 RETURNING qty;
INSERT INTO orders (tenant_id, id, qty) VALUES (902, 1, 3);
SELECT count(*), sum(qty) FROM orders WHERE tenant_id >= 900;
DELETE FROM orders WHERE tenant_id = 902;
${end};
-- end
-- foreach end: COMMIT | ROLLBACK
-- block
BEGIN;
UPDATE customers SET balance = balance - 10 WHERE email = 'ada@y.net';
UPDATE customers SET balance = balance + 10 WHERE email = 'cy@y.net';
UPDATE readings SET value = 0 WHERE sensor = 1;
UPDATE readings SET value = 0 WHERE sensor = 23;
UPDATE countries SET name = 'both' WHERE id = 1;
UPDATE settings SET value = 'both' WHERE id = 1;
SELECT sum(balance) FROM customers;
${end};
-- end
-- foreach end: COMMIT | ROLLBACK
-- block
BEGIN;
UPDATE orders SET status = 'first' WHERE tenant_id = 1;
SAVEPOINT a;
UPDATE orders SET status = 'second' WHERE tenant_id = 2;
UPDATE orders SET status = 'third' WHERE tenant_id = 3;
SAVEPOINT b;
DELETE FROM orders WHERE id = 1;
ROLLBACK TO b;
SELECT status, count(*) FROM orders WHERE tenant_id < 5 GROUP BY status;
ROLLBACK TO SAVEPOINT a;
UPDATE orders SET status = 'fourth' WHERE tenant_id = 4;
RELEASE a;
SELECT status, count(*) FROM orders WHERE tenant_id < 5 GROUP BY status;
${end};
-- end
-- block
BEGIN;
UPDATE orders SET note = 'one' WHERE tenant_id = 1;
UPDATE orders SET note = 'two' WHERE tenant_id = 2;
SELECT 1 / 0;
SELECT 1;
UPDATE orders SET note = 'three' WHERE tenant_id = 3;
COMMIT;
-- end
-- block
BEGIN;
UPDATE orders SET note = 'one' WHERE tenant_id = 1;
SAVEPOINT s;
UPDATE orders SET note = 'two' WHERE tenant_id = 2;
INSERT INTO orders (tenant_id, id) VALUES (2, 1);
ROLLBACK TO s;
UPDATE orders SET note = 'five' WHERE tenant_id = 5;
COMMIT;
-- end
-- block
BEGIN;
SAVEPOINT a;
UPDATE orders SET note = 'sp' WHERE tenant_id = 1;
SAVEPOINT a;
UPDATE orders SET note = 'sp' WHERE tenant_id = 2;
ROLLBACK TO a;
RELEASE a;
ROLLBACK TO a;
UPDATE orders SET note = 'end' WHERE tenant_id = 6;
RELEASE a;
RELEASE a;
ROLLBACK;
-- end
-- foreach level: READ COMMITTED | REPEATABLE READ | READ COMMITTED READ ONLY | REPEATABLE READ READ ONLY
-- block
BEGIN ISOLATION LEVEL ${level};
SELECT count(*) FROM orders;
SELECT tenant_id FROM orders WHERE tenant_id = 3;
SELECT o.id, c.name FROM orders o JOIN countries c ON c.id = o.id WHERE o.qty = 3;
SHOW transaction_isolation;
SHOW transaction_read_only;
COMMIT;
-- end
-- foreach level: READ COMMITTED | REPEATABLE READ
-- block
BEGIN ISOLATION LEVEL ${level};
UPDATE orders SET qty = 1 WHERE tenant_id IN (1, 2, 3);
INSERT INTO items (tenant_id, id) VALUES (70, 1), (71, 1), (72, 1);
SELECT count(*) FROM items WHERE tenant_id >= 70;
COMMIT;
-- end
-- block
BEGIN READ ONLY;
SELECT count(*) FROM items;
UPDATE items SET n = 1 WHERE tenant_id = 1;
ROLLBACK;
-- end
-- block
BEGIN READ ONLY;
UPDATE items SET n = 1;
ROLLBACK;
-- end
-- block
START TRANSACTION;
INSERT INTO items (tenant_id, id, n) SELECT tenant_id + 100, id, n FROM items WHERE tenant_id < 4;
SELECT count(*), sum(n) FROM items;
UPDATE items SET n = n + 1 WHERE tenant_id > 100;
DELETE FROM items WHERE tenant_id > 100 AND id = 1;
END;
-- end
-- block
BEGIN;
SET LOCAL application_name = 'local';
SELECT count(*) FROM orders;
SHOW application_name;
COMMIT;
-- end
SHOW application_name;
-- block
BEGIN;
SET application_name = 'kept';
SELECT count(*) FROM orders;
ROLLBACK;
-- end
SHOW application_name;
-- block
BEGIN;
COMMIT AND CHAIN;
UPDATE items SET n = 3 WHERE tenant_id = 1;
UPDATE items SET n = 3 WHERE tenant_id = 2;
ROLLBACK AND CHAIN;
SELECT count(*) FROM items WHERE n = 3;
COMMIT;
-- end
-- block
BEGIN;
SELECT now() = now(), count(DISTINCT now()) FROM orders;
SELECT now() = transaction_timestamp();
COMMIT;
-- end
-- block
BEGIN;
LOCK TABLE orders IN SHARE MODE;
SELECT count(*) FROM orders;
COMMIT;
-- end
-- block
BEGIN;
SELECT tenant_id, id FROM orders WHERE qty = 3 FOR UPDATE;
SELECT tenant_id, id FROM orders WHERE qty = 3 ORDER BY tenant_id, id FOR SHARE;
SELECT o.tenant_id FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE o.qty = 3 FOR UPDATE OF o;
SELECT o.tenant_id, c.name FROM orders o JOIN countries c ON c.id = o.qty WHERE o.tenant_id = 3 FOR SHARE;
SELECT o.tenant_id, c.name FROM orders o JOIN countries c ON c.id = o.qty FOR UPDATE OF o FOR KEY SHARE OF c;
SELECT * FROM countries WHERE id < 3 ORDER BY id DESC FOR UPDATE;
SELECT c.*, s.value FROM countries c JOIN settings s ON s.id = c.id ORDER BY c.id LIMIT 2 FOR NO KEY UPDATE OF c;
SELECT id FROM countries WHERE id < 0 FOR UPDATE;
COMMIT;
-- end
-- block
BEGIN;
INSERT INTO orders (tenant_id, id) VALUES (950, 1), (951, 1), (952, 1);
INSERT INTO orders (tenant_id, id) VALUES (953, 1), (951, 1);
COMMIT;
-- end
SELECT count(*) FROM orders WHERE tenant_id >= 950;
-- block
BEGIN;
UPDATE orders SET tenant_id = 960 WHERE tenant_id = 1;
UPDATE orders SET tenant_id = 961 WHERE tenant_id = 960;
SELECT tenant_id, id FROM orders WHERE tenant_id > 900;
ROLLBACK;
-- end
BEGIN; UPDATE items SET n = 1 WHERE tenant_id = 1; UPDATE items SET n = 1 WHERE tenant_id = 2; COMMIT;
UPDATE items SET n = 2 WHERE tenant_id = 1; UPDATE items SET n = 2 WHERE tenant_id = 2;
UPDATE items SET n = 4 WHERE tenant_id = 1; UPDATE items SET n = 1 / 0 WHERE tenant_id = 2;
UPDATE items SET n = 5 WHERE tenant_id = 1; SELECT count(*) FROM items WHERE n = 5; DELETE FROM items WHERE tenant_id = 2;
SELECT count(*) FROM orders; SELECT count(*) FROM items; SELECT id FROM countries ORDER BY id;
SELECT count(*) FROM orders; SELECT nosuch; SELECT 1;
COMMIT;
ROLLBACK;
SAVEPOINT x;

-- SET CONSTRAINTS.
CREATE TABLE parents (tenant_id bigint, id int, PRIMARY KEY (tenant_id, id)) WITH (cleave.shard_key = 'tenant_id');
CREATE TABLE children (tenant_id bigint, id int, parent int, PRIMARY KEY (tenant_id, id), CONSTRAINT to_parent FOREIGN KEY (tenant_id, parent) REFERENCES parents (tenant_id, id) DEFERRABLE) WITH (cleave.shard_key = 'tenant_id');
SET CONSTRAINTS ALL DEFERRED;
-- block
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO children VALUES (1, 1, 1);
INSERT INTO children VALUES (2, 1, 1), (3, 1, 1), (4, 1, 1);
INSERT INTO parents VALUES (1, 1), (2, 1), (3, 1), (4, 1);
COMMIT;
-- end
-- block
BEGIN;
INSERT INTO parents VALUES (5, 1);
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO children VALUES (5, 1, 2);
SET CONSTRAINTS ALL IMMEDIATE;
ROLLBACK;
-- end
-- block
BEGIN;
SET CONSTRAINTS to_parent DEFERRED;
INSERT INTO children VALUES (6, 1, 2);
COMMIT;
-- end
-- Named ones: of a sharded table, and of one that the default shard alone has.
-- only: postgres
CREATE TABLE kept (id int PRIMARY KEY, n int, CONSTRAINT kept_n UNIQUE (n) DEFERRABLE);
-- foreach names: to_parent | kept_n, public.to_parent
-- foreach first: SELECT 1 | SELECT count(*) FROM parents WHERE tenant_id = 7 | SELECT count(*) FROM kept | SELECT count(*) FROM parents
-- block
BEGIN;
${first};
SET CONSTRAINTS ${names} DEFERRED;
INSERT INTO children VALUES (7, 1, 1);
INSERT INTO children VALUES (8, 1, 1), (9, 1, 1), (10, 1, 1);
INSERT INTO parents VALUES (7, 1), (8, 1), (9, 1), (10, 1);
SET CONSTRAINTS ${names} IMMEDIATE;
INSERT INTO children VALUES (7, 2, 2);
ROLLBACK;
-- end
-- foreach names: kept_n, to_parent
-- foreach end: COMMIT | SET CONSTRAINTS kept_n IMMEDIATE | SET CONSTRAINTS to_parent IMMEDIATE | INSERT INTO kept VALUES (3, 1)
-- block
BEGIN;
INSERT INTO parents VALUES (11, 1);
SET CONSTRAINTS ${names} DEFERRED;
INSERT INTO kept VALUES (1, 1), (2, 1);
INSERT INTO parents VALUES (12, 1), (13, 1), (14, 1);
${end};
ROLLBACK;
-- end
-- foreach first: SELECT 1 | SELECT count(*) FROM parents WHERE tenant_id = 7
-- foreach name: no_such | to_parent, no_such | parents_pkey
-- block
BEGIN;
${first};
SET CONSTRAINTS ${name} DEFERRED;
ROLLBACK;
-- end
-- only: postgres
DROP TABLE kept;
-- block
BEGIN;
SAVEPOINT a;
SET CONSTRAINTS ALL DEFERRED;
RELEASE a;
INSERT INTO children VALUES (7, 1, 2), (8, 1, 2);
INSERT INTO parents VALUES (7, 2), (8, 2);
COMMIT;
-- end
-- block
BEGIN;
SET CONSTRAINTS ALL DEFERRED;
INSERT INTO children VALUES (9, 1, 2), (10, 1, 2), (11, 1, 2);
COMMIT;
-- end
SELECT * FROM children;
DROP TABLE children, parents;
-- In a failed block nothing but its end is answered otherwise: also what is refused, and what is not there.
-- block
BEGIN;
SELECT 1/0;
UPDATE countries SET name = random()::text;
SELECT * FROM no_such_table;
SELECT no_such_function(1);
SELEKT;
ALTER TABLE countries ADD COLUMN n text DEFAULT random()::text;
ROLLBACK;
-- end
-- The rows of an INSERT ... SELECT into a table with a copy on every shard get their values once.
-- only: postgres
CREATE TABLE kinds (id serial PRIMARY KEY, label text UNIQUE, nr int GENERATED ALWAYS AS IDENTITY, n smallint GENERATED BY DEFAULT AS IDENTITY) WITH (cleave.reference = true);
-- only: postgres
CREATE SEQUENCE kinds_other START 100;
-- only: postgres
-- block
BEGIN;
INSERT INTO kinds (label) SELECT i::text FROM generate_series(1, 4) i RETURNING *;
INSERT INTO kinds (label, n) SELECT 'o' || count(*), '7' FROM orders GROUP BY tenant_id ORDER BY count(*) LIMIT 1 RETURNING id, nr, n;
INSERT INTO kinds SELECT nextval('kinds_other'), 'c' || i FROM generate_series(1, 3) i;
INSERT INTO kinds (label, nr) OVERRIDING SYSTEM VALUE SELECT 's' || i, i + 50 FROM generate_series(1, 2) i RETURNING *;
INSERT INTO kinds (label) SELECT i::text FROM generate_series(3, 6) i ON CONFLICT (label) DO UPDATE SET n = kinds.n + 100 RETURNING *;
INSERT INTO kinds (label) SELECT i::text FROM generate_series(1, 8) i ON CONFLICT DO NOTHING RETURNING id, label;
WITH w AS (SELECT DISTINCT region FROM countries WHERE region IS NOT NULL) INSERT INTO kinds (label) SELECT region FROM w ORDER BY 1;
INSERT INTO kinds (label) SELECT 'x' WHERE false;
INSERT INTO kinds VALUES (DEFAULT, 'd', DEFAULT, DEFAULT) RETURNING *;
COPY kinds (label) FROM STDIN;
cc
\.
COMMIT;
-- end
-- only: postgres
SELECT * FROM kinds;
-- only: postgres
INSERT INTO kinds (label, nr) SELECT 'z', 3;
-- only: postgres
SELECT o.id, k.* FROM orders o JOIN kinds k ON k.id = o.id;
-- only: postgres
INSERT INTO kinds SELECT 1, 'dup';
-- only: postgres
DROP TABLE kinds;
CREATE TABLE kinds (id bigserial PRIMARY KEY, label text) WITH (cleave.reference = true);
INSERT INTO kinds (label) SELECT 'a' UNION ALL SELECT 'b';
INSERT INTO kinds (label) SELECT status FROM orders WHERE status IS NOT NULL ORDER BY status LIMIT 3 RETURNING id, label;
SELECT * FROM kinds;
DROP TABLE kinds;
-- A serial column for rows that are there, as the hint of the refusal says.
-- only: postgres
CREATE TABLE grown (k bigint PRIMARY KEY) WITH (cleave.shard_key = 'k');
-- only: postgres
INSERT INTO grown SELECT generate_series(1, 9);
-- only: postgres
-- block
BEGIN;
ALTER TABLE grown ADD COLUMN c bigint;
UPDATE grown SET c = k;
CREATE SEQUENCE grown_c OWNED BY grown.c;
SELECT setval('grown_c', 9);
ALTER TABLE grown ALTER COLUMN c SET DEFAULT nextval('grown_c');
COMMIT;
-- end
-- only: postgres
INSERT INTO grown SELECT 10 UNION ALL SELECT 11;
-- only: postgres
SELECT * FROM grown;
-- only: postgres
DROP TABLE grown;
