-- UNION, INTERSECT, EXCEPT.

-- foreach op: UNION ALL | UNION | EXCEPT | INTERSECT
-- foreach q: tenant_id FROM orders ${op} SELECT tenant_id FROM items | id FROM orders ${op} SELECT id FROM items | tenant_id, id FROM orders ${op} SELECT tenant_id, id FROM items | qty FROM orders ${op} SELECT n FROM items | status FROM orders ${op} SELECT sku FROM items | id FROM orders ${op} SELECT id FROM countries | id FROM countries ${op} SELECT qty FROM orders | sensor FROM readings ${op} SELECT tenant FROM events | tenant_id FROM orders WHERE tenant_id = 3 ${op} SELECT tenant_id FROM items WHERE tenant_id = 3 | tenant_id FROM orders WHERE tenant_id = 3 ${op} SELECT tenant_id FROM items WHERE tenant_id = 4 | qty FROM orders WHERE paid ${op} SELECT qty FROM orders WHERE NOT paid | 1 ${op} SELECT qty FROM orders | price FROM orders ${op} SELECT amount FROM items | qty FROM orders ${op} SELECT price FROM orders | NULL ${op} SELECT status FROM orders | tenant FROM settings ${op} SELECT tenant_id FROM orders | region FROM visits ${op} SELECT region FROM countries | class FROM stock ${op} SELECT kind FROM events | k FROM nothing ${op} SELECT tenant_id FROM orders | tenant_id FROM orders ${op} SELECT k FROM nothing
SELECT ${q};
-- only: postgres
-- foreach op: EXCEPT ALL | INTERSECT ALL
-- foreach q: tenant_id FROM orders ${op} SELECT tenant_id FROM items | id FROM orders ${op} SELECT id FROM items | qty FROM orders ${op} SELECT n FROM items
SELECT ${q};
-- foreach op: UNION ALL | UNION | EXCEPT | INTERSECT
-- foreach l: ORDER BY 1 | ORDER BY 1 DESC | ORDER BY id NULLS FIRST
SELECT id FROM orders ${op} SELECT order_id FROM items ${l};
-- foreach op: UNION | EXCEPT | INTERSECT
-- foreach l: ORDER BY 1 LIMIT 3 | ORDER BY 1 DESC LIMIT 2 OFFSET 1 | ORDER BY id NULLS FIRST OFFSET 2
SELECT id FROM orders ${op} SELECT order_id FROM items ${l};
SELECT tenant_id, id FROM orders UNION ALL SELECT tenant_id, id FROM items ORDER BY tenant_id, id LIMIT 20;
SELECT id FROM orders UNION SELECT id FROM items UNION SELECT id FROM countries;
SELECT id FROM orders UNION ALL SELECT id FROM items EXCEPT SELECT id FROM countries;
(SELECT id FROM orders UNION SELECT id FROM items) EXCEPT SELECT id FROM countries;
SELECT id FROM orders UNION (SELECT id FROM items INTERSECT SELECT id FROM countries);
SELECT id FROM orders INTERSECT SELECT id FROM items UNION ALL SELECT 77;
(SELECT tenant_id, id FROM orders ORDER BY tenant_id, id LIMIT 2) UNION ALL (SELECT tenant_id, id FROM items ORDER BY tenant_id DESC, id LIMIT 2);
(SELECT max(id) FROM orders) UNION ALL (SELECT min(id) FROM items);
SELECT status, count(*) FROM orders GROUP BY status UNION ALL SELECT sku, sum(n) FROM items GROUP BY sku;
SELECT 'orders' AS what, count(*) FROM orders UNION ALL SELECT 'items', count(*) FROM items ORDER BY what;
SELECT id AS a FROM orders UNION SELECT order_id AS b FROM items ORDER BY a;
SELECT * FROM (SELECT id FROM orders UNION SELECT id FROM items) u JOIN countries c USING (id);
SELECT count(*) FROM (SELECT * FROM orders UNION ALL SELECT * FROM orders) u;
SELECT count(*), count(DISTINCT t) FROM (SELECT tenant_id AS t FROM orders UNION ALL SELECT tenant_id FROM items) u;
SELECT t, count(*) FROM (SELECT tenant_id AS t FROM orders UNION ALL SELECT tenant_id FROM items) u GROUP BY t;
SELECT tenant_id FROM orders WHERE tenant_id IN (SELECT tenant_id FROM items UNION SELECT tenant FROM events);
SELECT o.id FROM orders o WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = o.tenant_id UNION ALL SELECT 1 FROM countries c WHERE c.id = o.qty);
SELECT DISTINCT a FROM (SELECT qty AS a FROM orders UNION ALL SELECT n FROM items) u ORDER BY a;
SELECT name COLLATE "C" FROM customers UNION SELECT name FROM countries ORDER BY 1;
VALUES (1), (2) UNION SELECT qty FROM orders;
SELECT id FROM orders UNION VALUES (1), (100);
TABLE nothing UNION ALL SELECT tenant_id, id, status FROM orders;
SELECT id, qty FROM orders UNION SELECT id FROM items;
SELECT id FROM orders UNION SELECT sku FROM items;
SELECT id FROM orders UNION SELECT id FROM items ORDER BY qty;
SELECT id FROM orders EXCEPT SELECT 'x';
SELECT tenant_id FROM orders WHERE tenant_id = 3 UNION SELECT tenant_id FROM orders WHERE tenant_id = 5;
SELECT tenant_id FROM orders WHERE tenant_id IN (3, 5) EXCEPT SELECT tenant_id FROM orders WHERE tenant_id = 5;
-- params: 3 | 4
SELECT id FROM orders WHERE tenant_id = $1 UNION ALL SELECT id FROM items WHERE tenant_id = $2;
-- params: 1
SELECT qty FROM orders UNION SELECT $1;
-- params: 2
SELECT qty FROM orders EXCEPT SELECT n FROM items WHERE n > $1;
