-- WITH: plain, chained, materialized or not, recursive, shadowing tables.

-- foreach m: | MATERIALIZED | NOT MATERIALIZED
-- foreach q: SELECT * FROM x WHERE id = 2 | SELECT count(*) FROM x | SELECT x.tenant_id, i.sku FROM x JOIN items i ON i.tenant_id = x.tenant_id AND i.order_id = x.id | SELECT a.id, b.id FROM x a JOIN x b ON a.tenant_id = b.tenant_id AND a.id < b.id | SELECT status, sum(qty) FROM x GROUP BY status | SELECT tenant_id FROM x UNION SELECT tenant_id FROM items | SELECT * FROM x ORDER BY tenant_id, id LIMIT 3 | SELECT name FROM countries WHERE id IN (SELECT id FROM x)
WITH x AS ${m} (SELECT tenant_id, id, status, qty FROM orders WHERE qty > 0) ${q};
WITH x AS (SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id) SELECT * FROM x WHERE n > 2;
WITH x AS (SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id), y AS (SELECT max(n) AS m FROM x) SELECT tenant_id FROM x, y WHERE n = m;
WITH x (a, b) AS (SELECT id, qty FROM orders) SELECT a, sum(b) FROM x GROUP BY a;
WITH x AS (SELECT 1 AS a), y AS (SELECT a + 1 AS a FROM x) SELECT o.id FROM orders o JOIN y ON y.a = o.qty;
WITH orders AS (SELECT 5 AS id) SELECT id FROM orders;
WITH orders AS (SELECT id, sku FROM items) SELECT count(*), max(sku) FROM orders;
WITH items AS (SELECT tenant_id, id FROM orders) SELECT i.id FROM items i JOIN public.items p ON p.tenant_id = i.tenant_id AND p.id = i.id;
WITH x AS (SELECT * FROM orders WHERE tenant_id = 3) SELECT x.id, i.id FROM x JOIN items i ON i.tenant_id = x.tenant_id;
WITH x AS (SELECT * FROM orders WHERE tenant_id = 3) SELECT x.id, y.id FROM x, (WITH z AS (SELECT * FROM items WHERE tenant_id = 4) SELECT * FROM z) y;
WITH x AS (SELECT sku, count(*) AS n FROM items GROUP BY sku) SELECT o.id, x.sku FROM orders o JOIN x ON x.n = o.qty;
WITH unused AS (SELECT 1 / 0) SELECT count(*) FROM orders;
WITH unused AS (SELECT * FROM items) SELECT tenant_id FROM orders WHERE id = 1;
WITH x AS (SELECT tenant_id FROM orders), y AS (SELECT tenant_id FROM items) SELECT * FROM x INTERSECT SELECT * FROM y;
WITH x AS (SELECT tenant_id FROM orders EXCEPT SELECT tenant_id FROM items) SELECT count(*) FROM x;
WITH a AS (WITH b AS (SELECT id, qty FROM orders) SELECT id, max(qty) AS q FROM b GROUP BY id) SELECT * FROM a WHERE q > 3;
WITH x AS (SELECT status, avg(price) AS p FROM orders GROUP BY status) SELECT o.tenant_id, o.id FROM orders o JOIN x ON x.status = o.status AND o.price > x.p;
WITH x AS (SELECT max(qty) AS m FROM orders) SELECT tenant_id, id FROM orders WHERE qty = (SELECT m FROM x);
WITH x AS (SELECT tenant_id, id, row_number() OVER (PARTITION BY tenant_id ORDER BY price DESC NULLS LAST, id) AS r FROM orders) SELECT tenant_id, id FROM x WHERE r = 1;
WITH x AS (SELECT id FROM countries) SELECT o.id FROM orders o WHERE o.qty IN (SELECT id FROM x);
WITH x AS (VALUES (1, 'a'), (2, 'b')) SELECT o.tenant_id, x.column2 FROM orders o JOIN x ON x.column1 = o.id;
WITH x AS (TABLE stock) SELECT class, count(*) FROM x GROUP BY class;
WITH x AS (SELECT * FROM nosuch) SELECT 1;
WITH x AS (SELECT 1), x AS (SELECT 2) SELECT * FROM x;
SELECT * FROM (WITH x AS (SELECT status FROM orders WHERE qty = 3) SELECT status, count(*) FROM x GROUP BY status) s;
SELECT id, (WITH x AS (SELECT n FROM items i WHERE i.tenant_id = o.tenant_id) SELECT sum(n) FROM x) FROM orders o;

WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 6) SELECT n FROM t;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 6) SELECT t.n, count(o.id) FROM t LEFT JOIN orders o ON o.qty = t.n GROUP BY t.n;
WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 14) SELECT n FROM t WHERE n NOT IN (SELECT tenant_id FROM orders);
WITH RECURSIVE t AS (SELECT tenant_id, id FROM orders WHERE qty = 1 UNION SELECT o.tenant_id, o.id FROM orders o JOIN t ON o.tenant_id = t.tenant_id AND o.id = t.id + 1) SELECT * FROM t;
WITH RECURSIVE t AS (SELECT tenant_id, qty FROM orders WHERE tenant_id = 1 UNION SELECT o.tenant_id, o.qty FROM orders o JOIN t ON o.tenant_id = t.qty + 1) SELECT * FROM t;
WITH RECURSIVE t AS (SELECT sensor, 1 AS depth FROM readings WHERE sensor = 0 UNION SELECT r.sensor, t.depth + 1 FROM readings r JOIN t ON r.sensor = t.sensor + r.seq WHERE t.depth < 5) SELECT sensor, min(depth) FROM t GROUP BY sensor;
WITH RECURSIVE t AS (SELECT id, name FROM countries WHERE id = 1 UNION ALL SELECT c.id, c.name FROM countries c JOIN t ON c.id = t.id + 1) SELECT * FROM t;
WITH RECURSIVE t AS (SELECT id, name FROM settings WHERE id = 1 UNION ALL SELECT s.id, s.name FROM settings s JOIN t ON s.id = t.id + 1) SELECT t.id, o.id FROM t JOIN orders o ON o.tenant_id = t.id;
WITH RECURSIVE t (k, path) AS (SELECT 1::bigint, '1' UNION ALL SELECT o.tenant_id, t.path || '>' || o.tenant_id FROM t JOIN orders o ON o.tenant_id = t.k + o.id AND o.tenant_id < 7) SELECT path FROM t;
-- only: postgres
WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t) SELECT n FROM t LIMIT 5;
-- only: postgres
WITH RECURSIVE t (a, b) AS (SELECT tenant_id, tenant_id + 1 FROM orders WHERE tenant_id < 3 UNION ALL SELECT t.b, o.tenant_id + 1 FROM t JOIN orders o ON o.tenant_id = t.b AND o.id = 1 AND t.b < 6) SEARCH DEPTH FIRST BY a SET s SELECT a, b FROM t;
-- only: postgres
WITH RECURSIVE t (a) AS (SELECT 1::bigint UNION ALL SELECT (o.tenant_id % 4) + 1 FROM t JOIN orders o ON o.tenant_id = t.a AND o.id = 2) CYCLE a SET looped USING path SELECT a, looped FROM t;
-- params: 2
WITH x AS (SELECT tenant_id, id FROM orders WHERE qty > $1) SELECT count(*) FROM x;
-- params: 3 | 2
WITH x AS (SELECT id FROM orders WHERE tenant_id = $1) SELECT * FROM x WHERE id >= $2;
