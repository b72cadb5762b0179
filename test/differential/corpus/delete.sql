-- DELETE: many shards, USING, subqueries, RETURNING; TRUNCATE; MERGE.

DELETE FROM orders WHERE qty = 1;
DELETE FROM orders WHERE status = 'new' RETURNING *;
DELETE FROM orders WHERE tenant_id IN (1, 2) AND id = 3 RETURNING tenant_id AS t, id;
DELETE FROM orders WHERE tenant_id = 5;
DELETE FROM orders WHERE tenant_id = 5 OR paid;
DELETE FROM orders WHERE false RETURNING id;
DELETE FROM orders o WHERE o.price < 0 RETURNING o.id, o.price * 2;
DELETE FROM orders WHERE nosuch = 1;
DELETE FROM orders WHERE 1 / (id - 2) > 0;
DELETE FROM items i USING orders o WHERE o.tenant_id = i.tenant_id AND o.id = i.order_id AND o.qty > 4;
DELETE FROM items i USING orders o WHERE o.id = i.order_id AND o.qty = 5 RETURNING i.tenant_id, i.id;
DELETE FROM items i USING countries c WHERE c.id = i.id AND c.region = 'us' RETURNING i.*, c.code;
DELETE FROM items WHERE tenant_id IN (SELECT tenant_id FROM orders WHERE id = 4);
DELETE FROM items WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.tenant_id = items.tenant_id AND o.id = items.order_id);
DELETE FROM items WHERE n = (SELECT max(n) FROM items) RETURNING tenant_id, id, n;
DELETE FROM items WHERE (tenant_id, id) IN (SELECT tenant_id, id FROM items ORDER BY amount NULLS FIRST, tenant_id, id LIMIT 3) RETURNING tenant_id, id;
WITH x AS (SELECT sku FROM items GROUP BY sku HAVING count(*) < 4) DELETE FROM items USING x WHERE items.sku = x.sku;
DELETE FROM customers WHERE country IN (SELECT id FROM countries WHERE region = 'eu') RETURNING email;
DELETE FROM devices WHERE id > '80000000-0000-0000-0000-000000000000';
DELETE FROM visits WHERE region = 'eu' AND visitor > 3 RETURNING *;
DELETE FROM readings WHERE sensor > 18 RETURNING sensor, seq;
DELETE FROM readings WHERE value = seq;
DELETE FROM events WHERE at BETWEEN '2024-02-20' AND '2024-03-20' RETURNING at;
DELETE FROM stock WHERE class IN ('a', 'd') AND pieces > 5;
DELETE FROM countries WHERE id = 8;
DELETE FROM countries WHERE region IS NULL RETURNING id;
DELETE FROM settings WHERE tenant = 5 RETURNING *;
DELETE FROM settings WHERE tenant IN (SELECT tenant_id FROM orders);
DELETE FROM nothing;
DELETE FROM orders;
-- block
BEGIN;
TRUNCATE items;
SELECT count(*) FROM items;
ROLLBACK;
-- end
SELECT count(*) FROM items;
-- block
BEGIN;
TRUNCATE items, orders, countries, visits, stock, settings RESTART IDENTITY CASCADE;
SELECT count(*) FROM countries;
ROLLBACK;
-- end
SELECT count(*) FROM orders;
TRUNCATE visits, stock;
TRUNCATE countries;
-- params: 2
DELETE FROM readings WHERE seq = $1 RETURNING sensor;
-- params: 2024-03-01
DELETE FROM events WHERE at > $1;

-- only: postgres
MERGE INTO readings t USING (VALUES (5, 1, 100), (5, 77, 200)) s(k, q, v) ON t.sensor = s.k AND t.seq = s.q AND t.sensor = 5 WHEN MATCHED THEN UPDATE SET value = s.v WHEN NOT MATCHED THEN INSERT (sensor, seq, value) VALUES (5, s.q, s.v);
-- only: postgres
MERGE INTO readings t USING countries s ON t.sensor = 6 AND t.seq = s.id WHEN MATCHED THEN DELETE;
-- only: postgres
MERGE INTO readings t USING countries s ON t.sensor = s.id AND t.seq = 1 WHEN MATCHED THEN UPDATE SET value = 5 WHEN NOT MATCHED THEN INSERT (sensor, seq, value) VALUES (s.id, 1, 6);
-- only: postgres
MERGE INTO customers t USING (SELECT email, balance FROM customers WHERE age > 22) s ON t.email = s.email WHEN MATCHED AND s.balance > 0 THEN UPDATE SET balance = 0 WHEN MATCHED THEN DO NOTHING;

-- only: postgres
WITH gone AS (DELETE FROM readings WHERE seq = 3 RETURNING *) SELECT count(*), max(sensor) FROM gone;
-- only: postgres
WITH gone AS (DELETE FROM readings WHERE sensor = 5 RETURNING *) SELECT * FROM gone;
-- only: postgres
WITH moved AS (DELETE FROM devices WHERE kind = 'tablet' RETURNING id, kind) INSERT INTO devices (id, kind) SELECT md5(id::text)::uuid, 'again' FROM moved;
-- only: postgres
WITH new AS (INSERT INTO nothing (k, a) VALUES (1, 1), (2, 2), (3, 3) RETURNING k) SELECT count(*) FROM new;
-- only: postgres
WITH u AS (UPDATE customers SET age = age + 1 RETURNING email, age) SELECT max(age), count(*) FROM u;
-- only: postgres
WITH u AS (UPDATE customers SET age = age + 1 WHERE email = 'bob@x.org' RETURNING email, age) SELECT u.age, c.age FROM u, customers c WHERE c.email = u.email AND c.email = 'bob@x.org';
