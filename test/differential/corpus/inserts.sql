-- INSERT whose rows are on several shards.

INSERT INTO orders (tenant_id, id) VALUES (1, 101), (2, 101), (3, 101), (4, 101), (5, 101);
INSERT INTO orders (tenant_id, id, note, qty) VALUES (1, 102, 'a', 1), (2, 102, 'b', DEFAULT), (3, 102, NULL, 3), (4, 102, $$d$$, 4), (5, 102, E'\te', 5) RETURNING *;
INSERT INTO orders (tenant_id, id) VALUES (9, 103), (1, 103), (8, 103), (2, 103), (7, 103), (3, 103) RETURNING tenant_id, id * 2 AS double;
INSERT INTO orders (tenant_id, id, note) VALUES (1, 101, 'again'), (2, 104, 'new') ON CONFLICT DO NOTHING;
INSERT INTO orders (tenant_id, id, note) VALUES (1, 101, 'again'), (2, 105, 'new'), (3, 101, 'x') ON CONFLICT (tenant_id, id) DO NOTHING RETURNING tenant_id, id;
INSERT INTO orders AS o (tenant_id, id, note) VALUES (1, 101, 'upd'), (2, 106, 'new'), (3, 101, 'upd') ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note || coalesce(o.note, '-') RETURNING o.tenant_id, o.note;
INSERT INTO orders AS o (tenant_id, id, note) VALUES (1, 101, 'upd'), (2, 107, 'new'), (3, 101, 'upd') ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note WHERE o.tenant_id = 3 RETURNING o.tenant_id, o.note;
INSERT INTO orders (tenant_id, id) VALUES (1, 101), (2, 108);
INSERT INTO orders (tenant_id, id) VALUES (1, 109), (NULL, 109), (3, 109);
INSERT INTO orders (tenant_id, id) VALUES (1, 110), (2, NULL), (3, 110);
INSERT INTO orders (tenant_id, id, qty) VALUES (1, 111, 'x'), (2, 111, 3);
INSERT INTO orders (tenant_id, id, qty) VALUES (1, 111, 1/0), (2, 111, 3);
INSERT INTO orders (tenant_id, id) VALUES (1 + 1, 112), (length('abc'), 112), (4 * 2, 112), ((5)::bigint, 112), (-7, 112), (2.5, 113), ('6', 112);
INSERT INTO orders (tenant_id, id) VALUES (99999999999999999999, 112);
INSERT INTO orders (tenant_id, id) VALUES ((SELECT max(tenant_id) + 1 FROM orders), 114), ((SELECT count(*) FROM items), 114);
INSERT INTO orders (tenant_id, id, note, qty) VALUES (1, 115, (SELECT max(note) FROM orders), 1), (2, 115, (SELECT name FROM settings WHERE id = 1), (SELECT count(*) FROM countries)), (3, 115, (SELECT name FROM countries WHERE id = 1), 2);
INSERT INTO orders (tenant_id, id, note) VALUES (1, 116, (SELECT email FROM customers ORDER BY email LIMIT 1)), (2, 116, NULL);
INSERT INTO orders (VALUES (1, 117), (2, 117), (3, 117));
INSERT INTO orders VALUES (1, 118, 'a'), (2, 118);
INSERT INTO orders (tenant_id, id) VALUES (1, 119), (2, 119), (2, 119);
INSERT INTO customers (email, name) VALUES (lower('NEW@x.org'), 'New'), ('b' || '@x.org', 'B'), (concat('c', '@', 'x'), upper('c')) RETURNING *;
INSERT INTO devices (id, owner) VALUES ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 'x'), (md5('q')::uuid, 'y'), ('{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12}', 'z') RETURNING id;
INSERT INTO visits (visitor, region, pages) VALUES (100, 'eu', 1), (101, 'us', 2), (102, lower('ASIA'), 3), (50 + 53, 'x', 4) RETURNING *;
INSERT INTO readings VALUES (1, 50), (6, 50), (11, 50), (16, 50), (30, 50) RETURNING *;
INSERT INTO events (at, id) VALUES ('2024-01-01', 77), ('2024-02-15 10:00', 77), (timestamp '2024-03-20', 77), (date '2024-05-01' + 1, 77) RETURNING *;
INSERT INTO stock (class, id) VALUES ('a', 50), ('b', 50), ('c', 50), ('d', 50) RETURNING class;
-- params: 1 | 2024-05-05 | 2 | 120
INSERT INTO orders (tenant_id, id, day) VALUES ($1, 121, $2), ($3, 121, '2024-01-02'), (3, $4, DEFAULT) RETURNING tenant_id, day;
-- params: 1 | 5 | 2 | 122
INSERT INTO orders (tenant_id, id, qty) VALUES ($1, $4, $2), ($3::bigint, 123, $2 + 1), ($2, 122, 7) RETURNING tenant_id, qty;
WITH c AS (SELECT name FROM countries WHERE id = 2) INSERT INTO orders (tenant_id, id, note) VALUES (1, 124, (SELECT name FROM c)), (2, 124, 'x'), (3, 124, 'y') RETURNING note;
INSERT INTO orders (tenant_id, id) VALUES (1, 125), (2, 125) RETURNING (SELECT count(*) FROM countries), tenant_id;
INSERT INTO orders (tenant_id, id, at) VALUES (1, 126, now() - now() + '2024-01-01'), (2, 126, '2024-01-02') RETURNING at;
INSERT INTO nothing VALUES (1), (2), (3), (4), (5) RETURNING k, a, c;
-- INSERT from queries
INSERT INTO items (tenant_id, id, sku) SELECT tenant_id, id + 200, note FROM orders;
-- order: any
INSERT INTO items (tenant_id, id, n) SELECT tenant_id, 300, count(*) FROM orders GROUP BY tenant_id RETURNING tenant_id, n;
INSERT INTO items (tenant_id, id) SELECT id, tenant_id + 400 FROM orders ON CONFLICT DO NOTHING;
-- order: any
INSERT INTO items (tenant_id, id) SELECT id + 500, tenant_id FROM orders WHERE id < 3 RETURNING tenant_id, id;
INSERT INTO items (tenant_id, id) SELECT tenant_id, id + 600 FROM orders ORDER BY id, tenant_id LIMIT 10 RETURNING tenant_id, id;
-- order: any
INSERT INTO orders SELECT tenant_id, id + 1000, note, qty, price FROM orders RETURNING id;
INSERT INTO orders SELECT tenant_id + 100, id, status, qty, price, day, at, paid, note FROM orders;
INSERT INTO orders (tenant_id, id) SELECT g, g + 5000 FROM generate_series(1, 50) g;
-- order: any
INSERT INTO orders (tenant_id, id, day, note) SELECT g, 6000, '2024-01-01', 'lit' FROM generate_series(1, 9) g RETURNING *;
-- order: any
INSERT INTO orders (tenant_id, id, qty, price) SELECT g * 1.5, 7000, g + 0.5, g / 3.0 FROM generate_series(1, 9) g RETURNING *;
INSERT INTO orders (tenant_id, id) SELECT tenant, id + 8000 FROM settings;
-- order: any
INSERT INTO orders (tenant_id, id) SELECT tenant, id + 8000 FROM settings WHERE tenant IS NOT NULL RETURNING *;
-- order: any
INSERT INTO orders (tenant_id, id, note) SELECT id, 9000, name FROM countries RETURNING *;
INSERT INTO orders (tenant_id, id, note) SELECT o.tenant_id, 9100 + i.id, i.sku FROM orders o JOIN items i ON i.order_id = o.id AND o.tenant_id < 3 ON CONFLICT (tenant_id, id) DO UPDATE SET note = 'twice';
-- order: any
INSERT INTO orders (tenant_id, id, note) SELECT DISTINCT 1 + age % 5, 9200, 'age' FROM customers WHERE age IS NOT NULL ON CONFLICT DO NOTHING RETURNING tenant_id;
-- order: any
WITH x AS (SELECT tenant_id, max(id) AS m FROM orders GROUP BY tenant_id) INSERT INTO items (tenant_id, id) SELECT tenant_id, m + 20000 FROM x RETURNING *;
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 20) INSERT INTO orders (tenant_id, id) SELECT n, 9300 FROM r;
INSERT INTO orders (tenant_id, id) SELECT 1, 9400 UNION ALL SELECT 2, 9400 UNION ALL SELECT 3, 9400;
-- order: any
INSERT INTO customers (email, age) SELECT name, id FROM countries WHERE name IS NOT NULL RETURNING *;
INSERT INTO customers (email) SELECT 'x' || tenant_id || '-' || id FROM orders WHERE tenant_id < 4;
-- order: any
INSERT INTO events (at, id, kind) SELECT day, 900 + tenant_id, status FROM orders WHERE day IS NOT NULL ON CONFLICT DO NOTHING RETURNING at;
INSERT INTO orders (tenant_id, id) SELECT tenant_id FROM orders;
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM orders;
INSERT INTO orders (tenant_id, id, price) SELECT tenant_id, id + 30000, 1e12 FROM orders;
INSERT INTO items (tenant_id, id) TABLE nothing;
-- a table in one place
INSERT INTO settings (id, name, tenant) SELECT tenant_id * 1000 + id, note, tenant_id FROM orders WHERE id = 1;
INSERT INTO settings (id, name) VALUES (90, (SELECT max(note) FROM orders)), (91, (SELECT count(*)::text FROM items)) RETURNING *;
INSERT INTO settings (id, name) SELECT id + 2000, 'x' FROM orders WHERE tenant_id IN (1, 2, 3) ON CONFLICT (id) DO NOTHING;
UPDATE settings SET value = o.note FROM orders o WHERE o.id = 1 AND o.tenant_id = settings.tenant;
-- order: any
UPDATE settings SET value = (SELECT count(*)::text FROM orders WHERE orders.tenant_id = settings.tenant) RETURNING id, value;
-- order: any
DELETE FROM settings WHERE tenant IN (SELECT tenant_id FROM orders WHERE qty > 3) RETURNING id;
-- More rows than are held: they go to the shards by COPY.
-- order: any
INSERT INTO items (tenant_id, id, order_id, sku, n) SELECT g % 97, 100000 + g, NULL, repeat(E'x\t\\y\n', 25) || g, g FROM generate_series(1, 40000) g;
SELECT count(*), count(DISTINCT sku), sum(n), max(length(sku)), bool_and(order_id IS NULL) FROM items;
INSERT INTO items (tenant_id, id, sku) SELECT g % 97, 100000 + g, repeat('y', 150) FROM generate_series(40001, 1, -1) g;
INSERT INTO items (tenant_id, id, sku) SELECT nullif(g % 97, 96), 200000 + g, repeat('y', 150) FROM generate_series(1, 40000) g;
INSERT INTO items (tenant_id, id, sku) SELECT tenant_id + 1, id + 300000, sku FROM items;
SELECT count(*), count(DISTINCT sku), sum(id) FROM items;
