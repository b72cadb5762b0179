-- Subqueries: scalar, IN, EXISTS, ANY, ALL, correlated and not, in every clause.

-- foreach p: i.tenant_id = o.tenant_id AND i.order_id = o.id | i.tenant_id = o.tenant_id | i.order_id = o.id | i.n = o.qty | i.tenant_id = o.tenant_id AND i.n > o.qty | i.tenant_id > 10 | i.tenant_id = o.tenant_id + 1 AND i.id = o.id | i.n = 99
-- foreach e: EXISTS | NOT EXISTS
SELECT o.tenant_id, o.id FROM orders o WHERE ${e} (SELECT 1 FROM items i WHERE ${p});
-- foreach s: SELECT order_id FROM items i WHERE i.tenant_id = o.tenant_id | SELECT order_id FROM items | SELECT n FROM items WHERE n IS NOT NULL | SELECT id FROM items WHERE false | SELECT i.order_id FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id IS NOT NULL | SELECT id FROM countries | SELECT 1 UNION SELECT 3
-- foreach e: IN | NOT IN | = ANY | <> ALL | > ALL | < ANY | >= ANY
SELECT o.tenant_id, o.id FROM orders o WHERE o.id ${e} (${s});
-- foreach s: SELECT tenant_id FROM items WHERE n = 1 | SELECT tenant_id FROM items | SELECT DISTINCT tenant FROM events WHERE weight = 3 | SELECT tenant FROM settings | SELECT id FROM countries WHERE region = 'eu' | SELECT tenant_id FROM orders WHERE status = 'sent'
-- foreach e: IN | NOT IN
SELECT tenant_id, id, status FROM orders WHERE tenant_id ${e} (${s});
-- foreach s: SELECT max(n) FROM items i WHERE i.tenant_id = o.tenant_id | SELECT max(n) FROM items | SELECT count(*) FROM items i WHERE i.order_id = o.id | SELECT sku FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = o.id | SELECT sum(amount) FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id | SELECT name FROM countries c WHERE c.id = o.id | SELECT value FROM settings WHERE id = o.qty | SELECT avg(p.price) FROM orders p WHERE p.tenant_id = o.tenant_id AND p.id <> o.id | SELECT min(p.price) FROM orders p WHERE p.status = o.status | SELECT i.n FROM items i ORDER BY i.tenant_id, i.id LIMIT 1 | SELECT NULL::integer | SELECT o.qty + 1
SELECT o.tenant_id, o.id, (${s}) AS s FROM orders o;
-- foreach s: SELECT avg(qty) FROM orders | SELECT max(n) - 1 FROM items | SELECT avg(p.qty) FROM orders p WHERE p.tenant_id = o.tenant_id | SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id | SELECT id FROM countries WHERE code = 'fr' | SELECT id FROM countries WHERE code = 'nn'
-- foreach c: > | = | <= | IS DISTINCT FROM
SELECT tenant_id, id FROM orders o WHERE qty ${c} (${s});

SELECT (SELECT id FROM orders WHERE qty = 1) AS many;
SELECT tenant_id FROM orders WHERE qty = (SELECT qty FROM orders WHERE status = 'new');
SELECT tenant_id FROM orders WHERE (qty, id) = (SELECT n, id FROM items ORDER BY tenant_id, id LIMIT 1);
SELECT tenant_id, id FROM orders WHERE (tenant_id, id) IN (SELECT tenant_id, order_id FROM items);
SELECT tenant_id, id FROM orders WHERE (tenant_id, id) NOT IN (SELECT tenant_id, order_id FROM items WHERE order_id IS NOT NULL);
SELECT tenant_id, id FROM orders WHERE (id, qty) IN (SELECT order_id, n FROM items);
SELECT tenant_id, id FROM orders WHERE (SELECT count(*) FROM items i WHERE i.tenant_id = orders.tenant_id) > 3;
SELECT tenant_id, id FROM orders WHERE (SELECT paid) AND qty > 1;
SELECT tenant_id, id FROM orders ORDER BY (SELECT max(n) FROM items i WHERE i.tenant_id = orders.tenant_id) DESC NULLS LAST, tenant_id, id;
SELECT tenant_id, id FROM orders ORDER BY (SELECT name FROM countries c WHERE c.id = orders.id) NULLS FIRST, tenant_id, id LIMIT 7;
SELECT max((SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id)) FROM orders o;
SELECT sum((SELECT n FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = 1)) FROM orders o;
SELECT status, count(*) FROM orders GROUP BY status HAVING count(*) > (SELECT count(*) FROM items) / 10;
SELECT (SELECT name FROM countries c WHERE c.id = o.id) AS country, count(*) FROM orders o GROUP BY 1;
SELECT CASE WHEN EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id) THEN 'has' ELSE 'none' END, o.id FROM orders o;
SELECT EXISTS (SELECT 1 FROM orders WHERE qty = 5), EXISTS (SELECT 1 FROM nothing);
SELECT EXISTS (SELECT 1 FROM orders WHERE tenant_id = 3 AND qty = 1);
SELECT NOT EXISTS (SELECT FROM orders WHERE qty > 100);
SELECT 3 IN (SELECT qty FROM orders), 77 IN (SELECT qty FROM orders), 77 NOT IN (SELECT qty FROM orders);
SELECT 1 WHERE EXISTS (SELECT 1 FROM orders);
SELECT 1 WHERE 5 > ALL (SELECT qty FROM orders WHERE qty IS NOT NULL);
SELECT count(*) FROM countries WHERE id IN (SELECT id FROM orders);
SELECT name FROM countries c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.id = c.id AND o.qty > 3);
SELECT name FROM countries c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.id = c.id);
SELECT name, (SELECT count(*) FROM customers u WHERE u.country = c.id) FROM countries c;
SELECT name, (SELECT string_agg(u.name, ',' ORDER BY u.name) FROM customers u WHERE u.country = c.id) FROM countries c;
SELECT name, value FROM settings s WHERE EXISTS (SELECT 1 FROM orders o WHERE o.tenant_id = s.tenant);
SELECT name, (SELECT sum(qty) FROM orders o WHERE o.tenant_id = s.tenant) FROM settings s;
SELECT x.* FROM (SELECT tenant_id, id, qty FROM orders WHERE qty > 1) x WHERE x.id = 2;
SELECT x.* FROM (SELECT tenant_id AS t, qty + 1 AS q FROM orders) x WHERE x.t = 3;
SELECT x.t FROM (SELECT tenant_id AS t, count(*) AS n FROM orders GROUP BY tenant_id) x WHERE x.n > 2 AND x.t > 4;
SELECT x.s, y.s FROM (SELECT sum(qty) AS s FROM orders) x, (SELECT sum(n) AS s FROM items) y;
SELECT * FROM (SELECT * FROM (SELECT tenant_id, id FROM orders) a WHERE id < 3) b WHERE tenant_id IN (1, 2, 3);
SELECT * FROM (SELECT id FROM orders UNION ALL SELECT id FROM items) u WHERE id > 3;
SELECT count(*) FROM (SELECT DISTINCT tenant_id FROM orders UNION SELECT tenant_id FROM items) u;
SELECT o.id FROM orders o WHERE o.id IN (SELECT i.id FROM items i WHERE i.n IN (SELECT p.qty FROM orders p WHERE p.tenant_id = i.tenant_id AND p.status = o.status));
SELECT o.tenant_id, o.id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND EXISTS (SELECT 1 FROM orders p WHERE p.tenant_id = i.tenant_id AND p.id = i.order_id AND p.qty > o.qty));
SELECT o.tenant_id, o.id FROM orders o WHERE o.price > (SELECT avg(price) FROM orders p WHERE p.status IS NOT DISTINCT FROM o.status);
SELECT o.tenant_id, o.id FROM orders o WHERE o.at = (SELECT max(at) FROM orders p WHERE p.tenant_id = o.tenant_id);
SELECT o.tenant_id, o.id FROM orders o WHERE o.qty = (SELECT max(qty) FROM orders);
SELECT o.tenant_id, o.id FROM orders o WHERE 2 > (SELECT count(*) FROM orders p WHERE p.tenant_id = o.tenant_id AND p.qty > o.qty);
SELECT r.sensor, r.seq FROM readings r WHERE r.value = (SELECT max(value) FROM readings s WHERE s.sensor = r.sensor);
SELECT r.sensor, r.seq FROM readings r WHERE r.sensor > 10 AND r.value > ALL (SELECT value FROM readings s WHERE s.sensor = r.sensor AND s.seq < r.seq AND s.value IS NOT NULL);
SELECT v.region, v.visitor FROM visits v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.region = v.region AND w.visitor = v.visitor + 1);
SELECT class, id FROM stock s WHERE price > (SELECT avg(price) FROM stock t WHERE t.class = s.class);
SELECT email FROM customers u WHERE balance > (SELECT avg(balance) FROM customers) ORDER BY email;
SELECT email FROM customers u WHERE tenant IN (SELECT tenant_id FROM orders GROUP BY tenant_id HAVING count(*) > 2);
SELECT id FROM devices d WHERE EXISTS (SELECT 1 FROM customers u WHERE u.tenant = d.tenant AND u.age > d.score);
SELECT at FROM events e WHERE weight >= ALL (SELECT weight FROM events f WHERE f.weight IS NOT NULL);
SELECT tenant_id FROM orders WHERE tenant_id = (SELECT min(tenant_id) FROM orders) ORDER BY id;
SELECT id FROM orders WHERE tenant_id = (SELECT tenant FROM settings WHERE id = 5);
SELECT id FROM orders WHERE tenant_id IN (SELECT tenant FROM settings WHERE name = 'size');
SELECT id FROM orders WHERE tenant_id = 3 AND id IN (SELECT order_id FROM items WHERE tenant_id = 3);
SELECT id FROM orders WHERE tenant_id = 3 AND id IN (SELECT order_id FROM items);
SELECT id FROM orders WHERE tenant_id = 3 AND id IN (SELECT order_id FROM items WHERE tenant_id = 4);
SELECT nosuch FROM (SELECT id FROM orders) x;
SELECT id FROM orders WHERE id = (SELECT id, qty FROM orders);
SELECT id FROM orders WHERE id IN (SELECT id, qty FROM orders);
SELECT x.qty FROM (SELECT id FROM orders) x;
-- only: postgres
SELECT ARRAY(SELECT id FROM orders WHERE tenant_id = 3 ORDER BY id);
-- only: postgres
SELECT ARRAY(SELECT qty FROM orders ORDER BY tenant_id, id);
-- only: postgres
SELECT tenant_id, ARRAY(SELECT id FROM items i WHERE i.tenant_id = o.tenant_id ORDER BY id) FROM orders o WHERE id = 1;
-- only: postgres
SELECT tenant_id, id, (SELECT row(i.id, i.sku) FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = 2) FROM orders o;
-- only: postgres
SELECT o.tenant_id, (SELECT json_agg(i.id ORDER BY i.id) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o WHERE o.id = 1;
-- only: postgres
SELECT (SELECT array_agg(DISTINCT status ORDER BY status) FROM orders)[2];
-- params: 3
-- params: 50
SELECT tenant_id, id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id AND i.n = $1);
-- params: 2 | new
SELECT (SELECT count(*) FROM items WHERE n = $1), count(*) FROM orders WHERE status = $2;
-- Without an order of its own a query has that of its only subquery.
SELECT * FROM (SELECT tenant_id, id, note FROM orders ORDER BY id DESC, tenant_id) x LIMIT 3;
SELECT id * 2, x.tenant_id FROM (SELECT * FROM orders ORDER BY id + 1 DESC, 1 DESC) x LIMIT 4 OFFSET 2;
SELECT * FROM (SELECT y.* FROM (SELECT tenant_id, id FROM orders ORDER BY 2, 1 DESC) y) x WHERE tenant_id > 2 LIMIT 5;
-- only: postgres
SELECT array_agg(id), string_agg(tenant_id::text, ',') FROM (SELECT id, tenant_id FROM orders ORDER BY id DESC, tenant_id) s;
-- only: postgres
SELECT row_number() OVER () AS n, id, tenant_id FROM (SELECT id, tenant_id FROM orders ORDER BY id, tenant_id DESC) s;
