-- UPDATE and DELETE over several shards, changes of the shard key, MERGE, reference tables.

UPDATE orders SET note = 'x' || tenant_id;
-- order: any
UPDATE orders SET qty = coalesce(qty, 0) + 1, note = NULL WHERE id = 2 RETURNING *;
-- order: any
UPDATE orders SET price = price * 2 WHERE tenant_id IN (1, 2, 3, 4) AND price > 1 RETURNING tenant_id, id, price;
UPDATE orders SET price = 1e30;
UPDATE orders SET id = 1;
-- order: any
UPDATE orders SET note = n.name FROM countries n WHERE n.id = orders.id RETURNING orders.tenant_id, n.code;
-- order: any
UPDATE orders o SET note = i.sku FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = o.id RETURNING o.tenant_id, o.id, i.sku;
-- order: any
UPDATE orders o SET note = i.sku FROM (SELECT order_id, min(sku) AS sku FROM items GROUP BY order_id) i WHERE i.order_id = o.id RETURNING o.tenant_id, o.id, i.sku;
UPDATE orders o SET qty = (SELECT count(*) FROM items i WHERE i.order_id = o.id);
-- order: any
UPDATE orders o SET qty = (SELECT count(*) FROM orders p WHERE p.status = o.status) RETURNING tenant_id, id, qty;
-- order: any
UPDATE orders SET price = (SELECT avg(price) FROM orders) WHERE price IS NULL RETURNING tenant_id, id, price;
UPDATE orders SET (note, qty) = (SELECT max(sku), count(*) FROM items WHERE items.tenant_id = orders.tenant_id);
UPDATE orders SET note = s.name FROM settings s WHERE s.tenant = orders.tenant_id AND s.id < 4;
UPDATE orders SET note = (SELECT name FROM settings WHERE id = 1);
-- order: any
UPDATE readings SET value = value + 1 WHERE sensor BETWEEN 3 AND 12 RETURNING sensor, seq;
-- order: any
UPDATE customers SET balance = 0 WHERE email LIKE '%x.org' RETURNING email;
-- params: 2
-- order: any
UPDATE orders SET qty = $1 WHERE qty > $1 RETURNING tenant_id, id;
-- params: 3 | abc
-- order: any
UPDATE orders SET note = $2 WHERE id IN (SELECT id FROM items WHERE n = $1) RETURNING note;
UPDATE orders SET note = d.d::text FROM (SELECT max(day) AS d FROM orders) d;
-- order: any
UPDATE orders SET at = now() - now() + timestamp '2024-01-01' WHERE id = 1 RETURNING at;
UPDATE nothing SET a = 1;
UPDATE orders SET nope = 1;
UPDATE orders SET qty = 'x';
UPDATE orders SET qty = 1 / (tenant_id - 5);
-- order: any
WITH x AS (SELECT tenant_id, id FROM orders ORDER BY price NULLS LAST, tenant_id, id LIMIT 5) UPDATE orders SET status = 'top' FROM x WHERE x.tenant_id = orders.tenant_id AND x.id = orders.id RETURNING orders.tenant_id, orders.id;
WITH a AS (SELECT id FROM countries), b AS (SELECT order_id FROM items WHERE order_id IN (SELECT id FROM a)) UPDATE orders SET note = 'b' WHERE id IN (SELECT order_id FROM b);
DELETE FROM orders WHERE qty = 3;
-- order: any
DELETE FROM orders WHERE id = 3 RETURNING *;
DELETE FROM orders WHERE tenant_id IN (1, 5, 9);
-- order: any
DELETE FROM items WHERE order_id IN (SELECT id FROM orders WHERE qty = 1) RETURNING tenant_id, id;
-- order: any
DELETE FROM items i WHERE EXISTS (SELECT 1 FROM orders o WHERE o.tenant_id = i.tenant_id AND o.id = i.order_id) RETURNING i.*;
DELETE FROM items i WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = i.order_id);
-- order: any
DELETE FROM items USING orders WHERE orders.tenant_id = items.tenant_id AND orders.id = items.id RETURNING items.id, orders.note;
DELETE FROM items USING settings WHERE settings.tenant = items.tenant_id;
-- order: any
DELETE FROM customers WHERE age > (SELECT avg(age) FROM customers) RETURNING email;
-- order: any
DELETE FROM orders WHERE (tenant_id, id) IN (SELECT tenant_id, id FROM orders ORDER BY day DESC NULLS LAST, tenant_id, id LIMIT 3) RETURNING tenant_id, id;
DELETE FROM visits a USING visits b WHERE a.visitor = b.visitor AND a.region < b.region;
DELETE FROM events;
-- order: any
DELETE FROM nothing RETURNING *;
-- the shard key changes
UPDATE orders SET tenant_id = 77 WHERE tenant_id = 6 AND id = 4;
UPDATE orders SET tenant_id = tenant_id WHERE tenant_id < 5;
-- order: any
UPDATE orders SET tenant_id = tenant_id + 1000, note = 'moved' WHERE id = 4 RETURNING *;
-- order: any
UPDATE orders SET tenant_id = tenant_id + 2000 RETURNING tenant_id, id, note;
UPDATE items SET tenant_id = 1, id = tenant_id * 100 + id WHERE id < 3;
UPDATE items SET tenant_id = 2;
UPDATE items SET tenant_id = NULL WHERE id = 4;
-- order: any
UPDATE customers SET email = upper(email) WHERE age > 22 RETURNING email, name;
-- order: any
UPDATE visits SET region = 'new', visitor = visitor + 100 WHERE pages > 2 RETURNING *;
-- order: any
UPDATE readings SET sensor = 24 - sensor, seq = seq + 100 RETURNING sensor, seq, value, unit;
-- order: any
UPDATE devices SET id = md5(id::text)::uuid, score = DEFAULT RETURNING id, owner, score;
-- order: any
UPDATE stock SET class = CASE class WHEN 'a' THEN 'b' WHEN 'b' THEN 'c' WHEN 'c' THEN 'd' ELSE 'a' END, id = id + 100 RETURNING class, id;
UPDATE customers c SET email = n.code || c.email FROM countries n WHERE n.id = c.country;
UPDATE customers SET email = 'same' WHERE age IS NULL;
-- order: any
UPDATE events SET at = at + interval '40 days' WHERE kind = 'in' RETURNING at, id;
UPDATE orders SET (tenant_id, note) = (tenant_id + 50000, 'row') WHERE id = 1;
-- MERGE
MERGE INTO items i USING orders o ON i.tenant_id = o.tenant_id AND i.id = o.id WHEN MATCHED THEN UPDATE SET sku = o.note WHEN NOT MATCHED THEN INSERT (tenant_id, id, sku) VALUES (o.tenant_id, o.id, 'merged');
MERGE INTO items i USING orders o ON i.tenant_id = o.tenant_id AND i.id = o.id AND o.tenant_id < 2000 WHEN MATCHED AND o.qty > 3 THEN DELETE WHEN MATCHED THEN DO NOTHING;
-- a source of rows for several shards: each gets those that it owns
-- only: postgres
MERGE INTO readings t USING (VALUES (5, 1, 100), (5, 77, 200), (12, 1, 300), (19, 77, 400)) s(k, q, v) ON t.sensor = s.k AND t.seq = s.q WHEN MATCHED AND s.v > 100 THEN DELETE WHEN MATCHED THEN UPDATE SET value = t.value + s.v WHEN NOT MATCHED THEN INSERT (sensor, seq, value) VALUES (s.k, s.q, s.v);
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 1, 'x'), (2, 900, 'y'), (NULL, 5, 'z'), (40, 1, NULL)) v(t, i, n) ON o.tenant_id = v.t AND o.id = v.i WHEN MATCHED THEN UPDATE SET note = v.n WHEN NOT MATCHED AND v.t IS NOT NULL THEN INSERT (tenant_id, id, note) VALUES (v.t, v.i, v.n);
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 1, 'x'), (NULL, 5, 'z')) v(t, i, n) ON o.tenant_id = v.t AND o.id = v.i WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (v.t, v.i, v.n);
-- only: postgres
MERGE INTO readings t USING (VALUES (5::bigint, 1), (3000000000, 1), (12, 1)) s(k, q) ON t.sensor = s.k AND t.seq = s.q WHEN MATCHED THEN DELETE;
-- only: postgres
MERGE INTO readings t USING (VALUES (5::bigint, 1), (3000000000, 1)) s(k, q) ON t.sensor = s.k AND t.seq = s.q WHEN NOT MATCHED THEN INSERT (sensor, seq) VALUES (s.k, s.q);
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 1), (2, 1), (1, 1)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i WHEN MATCHED THEN UPDATE SET note = 'twice';
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 901), (2, 901), (1, 901)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (v.t, v.i);
-- only: postgres
MERGE INTO readings t USING countries s ON t.sensor = s.id AND t.seq = 1 WHEN MATCHED THEN UPDATE SET unit = s.code WHEN NOT MATCHED THEN INSERT (sensor, seq, value) VALUES (s.id, 1, 6);
-- only: postgres
MERGE INTO orders o USING settings s ON s.tenant = o.tenant_id AND s.id = o.id WHEN MATCHED THEN UPDATE SET note = name || value WHEN NOT MATCHED AND tenant IS NOT NULL THEN INSERT (id, tenant_id, note) VALUES (s.id, tenant, s.value);
-- only: postgres
MERGE INTO orders o USING (SELECT order_id, min(sku) AS sku FROM items WHERE order_id IS NOT NULL GROUP BY order_id) i ON o.tenant_id = i.order_id AND o.id = 1 WHEN MATCHED AND EXISTS (SELECT 1 FROM countries c WHERE c.id = o.qty) THEN DELETE WHEN MATCHED THEN UPDATE SET note = i.sku, qty = (SELECT count(*) FROM items) WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (i.order_id, 1, i.sku);
-- only: postgres
WITH top AS (SELECT tenant_id, id, price FROM orders ORDER BY price DESC NULLS LAST, tenant_id, id LIMIT 7) MERGE INTO items i USING top ON i.tenant_id = top.tenant_id AND i.id = top.id WHEN MATCHED THEN UPDATE SET amount = top.price WHEN NOT MATCHED THEN INSERT (tenant_id, id, amount) VALUES (top.tenant_id, top.id, top.price);
-- only: postgres
MERGE INTO visits v USING (VALUES ('eu', 1, 5), ('us', 2, 6), ('xx', 3, 7)) s(region, visitor, pages) ON v.region = s.region AND s.visitor = v.visitor WHEN MATCHED THEN UPDATE SET pages = s.pages WHEN NOT MATCHED THEN INSERT VALUES (s.region, s.visitor, s.pages, 'new');
-- only: postgres
MERGE INTO customers c USING (SELECT DISTINCT ON (name) email, name, balance FROM customers ORDER BY name, email) s ON c.email = s.email WHEN MATCHED AND s.balance > 0 THEN DELETE WHEN MATCHED THEN UPDATE SET balance = 7;
-- only: postgres
-- params: {1,2,3,44} | {1,1,901,901}
MERGE INTO orders o USING unnest($1::bigint[], $2::int[]) AS s(k, i) ON o.tenant_id = s.k AND o.id = s.i WHEN MATCHED THEN UPDATE SET note = 'there', at = NULL WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (s.k, s.i, 'new');
-- only: postgres
-- params: 3 | 4 | some
MERGE INTO orders AS o USING (VALUES ($1::bigint, $2::int, $3::text), (77, 1, 'one')) AS s(k, i, n) ON o.tenant_id = s.k AND (o.id = s.i) WHEN MATCHED THEN UPDATE SET note = s.n;
-- only: postgres
-- params: 3 | 4 | some
MERGE INTO orders AS o USING (VALUES ($1::bigint, $2::int, $3::text), (77, 1, 'one')) AS s(k, i, n) ON o.tenant_id = s.k AND o.id = s.i WHEN MATCHED THEN UPDATE SET note = s.n WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (s.k, s.i, s.n);
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 1), (2, 900)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i WHEN NOT MATCHED BY SOURCE AND o.tenant_id < 3 THEN DELETE WHEN MATCHED THEN UPDATE SET note = 'kept' WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (v.t, v.i);
-- only: postgres
-- order: any
MERGE INTO orders o USING (VALUES (1, 1), (2, 900)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i WHEN MATCHED THEN UPDATE SET note = 'kept' WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (v.t, v.i) RETURNING merge_action(), v.*, o.tenant_id, o.note;
-- only: postgres
MERGE INTO orders o USING (VALUES (3, 1), (5, 2), (2, 900)) v(t, i) ON o.tenant_id % 7 = v.t AND o.id = v.i WHEN MATCHED AND o.qty > 2 THEN DELETE WHEN MATCHED THEN UPDATE SET qty = v.t WHEN NOT MATCHED THEN DO NOTHING;
-- only: postgres
MERGE INTO visits v USING countries c ON c.region = v.region AND c.id % 10 = v.pages WHEN MATCHED THEN UPDATE SET ref = c.code || v.ref;
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 1), (2, 900)) v(t, i) ON o.tenant_id > v.t AND o.id = v.i WHEN MATCHED THEN DELETE;
-- The condition on the target's key is no filter of the rows that are inserted.
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 901), (2, 901), (3, 901), (4, 901), (5, 901)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i AND o.tenant_id = 3 WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id, note) VALUES (v.t, v.i, 'other');
-- only: postgres
MERGE INTO orders o USING (VALUES (1, 1), (2, 1), (3, 1), (4, 901), (5, 901)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i AND v.t IN (3, 4) WHEN MATCHED THEN UPDATE SET note = 'met' WHEN NOT MATCHED AND v.i > 900 THEN INSERT (tenant_id, id, note) VALUES (v.t, v.i, 'other');
-- reference tables
-- order: any
INSERT INTO countries VALUES (20, 'aa', 'A', 'eu', 1), (21, 'bb', 'B', NULL, NULL) RETURNING id, name;
INSERT INTO countries VALUES (20, 'aa', 'A', 'eu', 1);
-- order: any
INSERT INTO countries VALUES (20, 'cc', 'C'), (22, 'cc', 'C') ON CONFLICT DO NOTHING RETURNING id;
-- order: any
INSERT INTO countries AS c VALUES (20, 'dd', 'D'), (23, 'dd', 'D') ON CONFLICT (id) DO UPDATE SET code = excluded.code, name = c.name || excluded.name RETURNING *;
-- order: any
INSERT INTO countries (id, code, big) SELECT 100 + tenant_id, max(note), count(*) FROM orders GROUP BY tenant_id RETURNING *;
INSERT INTO countries (id, big) VALUES (30, (SELECT count(*) FROM orders));
INSERT INTO countries (id, name) SELECT id + 1000, name FROM countries;
INSERT INTO countries (id, name) SELECT id + 3000, value FROM settings;
-- order: any
UPDATE countries SET name = upper(name), big = id * 2 WHERE id > 2 RETURNING id, name;
UPDATE countries SET big = s.tenant FROM settings s WHERE s.id = countries.id;
-- order: any
UPDATE countries SET big = (SELECT count(*) FROM orders o WHERE o.id = countries.id) RETURNING id, big;
UPDATE countries SET id = id + 5000 WHERE id > 1000;
UPDATE countries SET name = DEFAULT WHERE id = 4;
UPDATE countries SET id = NULL;
-- order: any
DELETE FROM countries WHERE id > 5000 RETURNING id;
DELETE FROM countries WHERE id IN (SELECT tenant_id + 100 FROM orders);
DELETE FROM countries;
-- WITH queries that change rows on several shards: each is a statement of its own.
-- only: postgres
-- order: any
WITH gone AS (DELETE FROM orders WHERE qty = 0 RETURNING tenant_id, id, note, price) INSERT INTO items (tenant_id, id, sku, amount) SELECT tenant_id, id + 70000, note, price FROM gone RETURNING tenant_id, id, sku, amount;
-- only: postgres
WITH gone AS (DELETE FROM orders WHERE qty > 2 RETURNING *) SELECT count(*), max(note), sum(price), min(at) FROM gone;
-- only: postgres
-- order: any
WITH gone AS (DELETE FROM orders WHERE id = 2 RETURNING *) SELECT * FROM gone WHERE qty IS NOT NULL;
-- only: postgres
WITH a AS (UPDATE orders SET qty = 100 WHERE qty = 1 RETURNING tenant_id, id), b AS (DELETE FROM items WHERE n = 3) SELECT tenant_id, id FROM a ORDER BY 1, 2;
-- only: postgres
WITH new AS (INSERT INTO orders (tenant_id, id, qty) VALUES (801, 1, 1), (802, 1, 2), (803, 1, 3) RETURNING tenant_id, qty) SELECT sum(qty), max(tenant_id) FROM new;
-- only: postgres
WITH new AS (INSERT INTO orders (tenant_id, id) SELECT id, 77 FROM countries RETURNING tenant_id) SELECT c.name FROM new JOIN countries c ON c.id = new.tenant_id ORDER BY 1;
-- only: postgres
WITH old AS (SELECT tenant_id, id FROM items WHERE n > 2), gone AS (DELETE FROM orders o USING old WHERE o.id = old.id AND o.tenant_id = old.tenant_id RETURNING o.id) UPDATE customers SET age = 1 WHERE age IN (SELECT id FROM gone);
-- only: postgres
WITH gone (a, b) AS (DELETE FROM orders WHERE id = 1 RETURNING tenant_id, status) UPDATE customers SET name = b FROM gone WHERE tenant = a;
-- only: postgres
WITH gone AS (DELETE FROM orders WHERE id = 1 RETURNING tenant_id) DELETE FROM items USING gone WHERE items.tenant_id = gone.tenant_id AND n > 1;
-- only: postgres
WITH gone AS (DELETE FROM orders WHERE id = 3 RETURNING tenant_id, note) INSERT INTO settings (id, name, tenant) SELECT 7000 + tenant_id, note, tenant_id FROM gone;
-- only: postgres
WITH gone AS (DELETE FROM orders WHERE id = 3 RETURNING 1) INSERT INTO countries (id, code) SELECT 7000 + count(*), 'xx' FROM gone;
-- only: postgres
WITH a AS (INSERT INTO orders (tenant_id, id) VALUES (1, 1), (2, 1)) SELECT 1;
-- only: postgres
WITH a AS (UPDATE orders SET qty = 5 WHERE qty = 4 RETURNING id), b AS (SELECT id FROM a UNION SELECT 7) SELECT count(*) FROM b;
-- only: postgres
WITH a AS (DELETE FROM orders WHERE false RETURNING *) SELECT * FROM a;
-- only: postgres
WITH a AS (UPDATE orders SET tenant_id = tenant_id + 100 WHERE id = 1 RETURNING tenant_id) SELECT count(*), min(tenant_id) FROM a;
-- only: postgres
WITH a AS (DELETE FROM orders RETURNING id) SELECT count(*) FROM a, orders;
-- only: postgres
WITH a AS (DELETE FROM orders) SELECT * FROM a;
-- only: postgres
WITH a AS (DELETE FROM nosuch RETURNING id) SELECT * FROM a, orders;
-- only: postgres
-- params: 3 | 4
WITH gone AS (DELETE FROM orders WHERE qty = $1::int RETURNING tenant_id, id) INSERT INTO items (tenant_id, id, n) SELECT tenant_id, id + 80000, $2::int FROM gone;
-- only: postgres
-- params: 3
WITH gone AS (DELETE FROM orders WHERE qty = $1 RETURNING tenant_id, id, now() AS t) SELECT count(*), count(DISTINCT t), bool_and(t = now()) FROM gone;
-- only: postgres
-- block
BEGIN;
WITH gone AS (DELETE FROM orders WHERE id = 1 RETURNING tenant_id) SELECT count(*) FROM gone;
SELECT count(*) FROM orders;
WITH new AS (INSERT INTO orders (tenant_id, id) VALUES (1, 1), (2, 1), (3, 1) RETURNING tenant_id) SELECT sum(tenant_id) FROM new;
ROLLBACK;
-- end
