-- What another router answers wrongly without a word: each must be right or refused.

-- ORDER BY that is not merged
SELECT tenant_id, id FROM orders ORDER BY id, tenant_id;
SELECT qty, tenant_id, id FROM orders ORDER BY qty DESC, tenant_id, id;
-- LIMIT and OFFSET of one shard
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id LIMIT 10;
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id LIMIT 10 OFFSET 10;
SELECT count(*) FROM (SELECT 1 FROM orders LIMIT 20) x;
-- DISTINCT that is not merged
SELECT DISTINCT status FROM orders;
SELECT count(*) FROM (SELECT DISTINCT qty FROM orders) x;
-- aggregates of each shard
SELECT count(*) FROM orders;
SELECT avg(price) FROM orders;
SELECT status, count(*) FROM orders GROUP BY status;
-- BETWEEN on the key taken for equality
SELECT tenant_id, id FROM orders WHERE tenant_id BETWEEN 3 AND 6;
SELECT sensor, seq FROM readings WHERE sensor BETWEEN 3 AND 16;
UPDATE orders SET note = 'between' WHERE tenant_id BETWEEN 3 AND 6;
DELETE FROM readings WHERE sensor BETWEEN 3 AND 16;
-- OR with a column that is not the key
SELECT tenant_id, id FROM orders WHERE tenant_id = 3 OR qty = 2;
UPDATE orders SET note = 'or' WHERE tenant_id = 3 OR qty = 2;
DELETE FROM orders WHERE tenant_id = 3 OR qty = 2;
-- joins on other columns
SELECT o.tenant_id, i.tenant_id FROM orders o JOIN items i ON o.id = i.order_id AND o.qty = i.n;
SELECT count(*) FROM orders o JOIN customers c ON c.tenant = o.tenant_id;
-- a transaction's second UPDATE, on another shard
-- block
BEGIN;
UPDATE orders SET note = 'first' WHERE tenant_id = 1;
UPDATE orders SET note = 'second' WHERE tenant_id = 2;
UPDATE orders SET note = 'third' WHERE tenant_id = 3;
UPDATE orders SET note = 'fourth' WHERE tenant_id = 4;
SELECT tenant_id, note FROM orders WHERE tenant_id < 5 ORDER BY tenant_id, id;
COMMIT;
-- end
SELECT tenant_id, note FROM orders WHERE tenant_id < 5 ORDER BY tenant_id, id;
-- command tags of one shard
UPDATE orders SET qty = 1;
INSERT INTO orders (tenant_id, id) VALUES (81, 1), (82, 1), (83, 1), (84, 1), (85, 1);
DELETE FROM orders WHERE tenant_id > 80;
SELECT * FROM orders;
-- the second statement of one message
UPDATE items SET n = 1 WHERE tenant_id = 1; UPDATE items SET n = 1 WHERE tenant_id = 2;
SELECT 1; SELECT count(*) FROM items;
-- SET that never reaches the shards
SET datestyle = 'German';
-- only: postgres
SELECT day FROM orders WHERE day IS NOT NULL ORDER BY tenant_id, id;
-- only: postgres
SELECT day::text FROM orders WHERE tenant_id = 4 ORDER BY id;
RESET datestyle;
-- keys in IN on one shard
SELECT tenant_id, id FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
UPDATE orders SET note = 'in' WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
-- subqueries on the shard alone
SELECT tenant_id, id FROM orders WHERE tenant_id = 3 AND id IN (SELECT order_id FROM items WHERE n > 0);
SELECT (SELECT count(*) FROM items) AS n, id FROM orders WHERE tenant_id = 3;
