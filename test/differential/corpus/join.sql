-- Joins of every kind, colocated or not.

-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
-- foreach on: o.tenant_id = i.tenant_id AND o.id = i.order_id | o.tenant_id = i.tenant_id AND o.qty = i.n | o.id = i.order_id AND o.tenant_id = i.tenant_id AND o.paid | o.tenant_id = i.tenant_id AND i.n = 1 AND o.id = i.id
SELECT o.tenant_id, o.id, i.tenant_id, i.id FROM orders o ${j} items i ON ${on};
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
-- foreach on: o.id = i.order_id AND o.qty = i.n | o.id = i.id AND o.tenant_id = i.n | o.tenant_id = i.order_id AND o.id = i.id
SELECT o.tenant_id, o.id, i.tenant_id, i.id FROM orders o ${j} items i ON ${on};
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
-- foreach t: devices d ON d.tenant = o.tenant_id AND d.score = o.qty | customers d ON d.tenant = o.tenant_id AND d.country = o.id | events d ON d.tenant = o.tenant_id AND d.weight = o.id | readings d ON d.sensor = o.tenant_id AND d.seq = o.id | settings d ON d.tenant = o.tenant_id | stock d ON d.id = o.tenant_id AND d.pieces = o.qty | visits d ON d.visitor = o.tenant_id AND d.pages = o.qty | countries d ON d.id = o.id | nothing d ON d.k = o.tenant_id
SELECT o.tenant_id, o.id, d.* FROM orders o ${j} ${t};
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
-- foreach t: countries c ON c.id = u.country | countries c ON c.id = u.country AND c.region = 'eu' | settings c ON c.tenant = u.tenant | devices c ON c.tenant = u.tenant | stock c ON c.id = u.country AND c.class = 'a' | nothing c ON c.k = u.tenant
SELECT u.email, c.* FROM customers u ${j} ${t};
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT * FROM orders o ${j} items i USING (tenant_id, id);
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT tenant_id, o.tenant_id AS o_tenant, i.tenant_id AS i_tenant, sku FROM orders o ${j} items i USING (tenant_id);
-- foreach j: NATURAL JOIN | NATURAL LEFT JOIN | NATURAL RIGHT JOIN | NATURAL FULL JOIN
SELECT * FROM orders ${j} items;
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT id, o.status, c.name FROM orders o ${j} countries c USING (id);
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT a.sensor, a.seq, b.sensor, b.seq FROM readings a ${j} readings b ON a.sensor = b.sensor AND a.seq = b.value;
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT a.sensor, a.seq, b.sensor, b.seq FROM readings a ${j} readings b ON a.value = b.sensor AND a.seq = b.seq;
-- foreach j: JOIN | LEFT JOIN
SELECT c.id, c.name, o.tenant_id FROM countries c ${j} orders o ON o.id = c.id AND o.qty > 2;
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN
-- foreach k: JOIN | LEFT JOIN | RIGHT JOIN
SELECT o.tenant_id, o.id, i.id, c.code FROM orders o ${j} items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id ${k} countries c ON c.id = i.n;
-- foreach j: JOIN | LEFT JOIN
-- foreach k: JOIN | LEFT JOIN | FULL JOIN
SELECT o.tenant_id, o.id, d.id, s.value FROM orders o ${j} devices d ON d.tenant = o.tenant_id AND d.score = o.id ${k} settings s ON s.tenant = d.tenant;
-- foreach w: | WHERE o.qty > 1 | WHERE i.n IS NULL | WHERE o.tenant_id = 3 | WHERE i.tenant_id IS NULL | WHERE o.qty = i.n | WHERE o.qty > 1 OR i.n = 2 | WHERE coalesce(i.n, 0) = 0
SELECT o.tenant_id, o.id, i.id, i.n FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id ${w};
-- foreach w: | WHERE c.region = 'eu' | WHERE c.id IS NULL | WHERE o.paid AND c.id > 1
SELECT o.tenant_id, o.id, c.name FROM orders o LEFT JOIN countries c ON c.id = o.qty ${w};
-- foreach w: | WHERE o.id IS NULL | WHERE o.tenant_id = 3 | WHERE o.qty IS NULL
SELECT c.id, c.name, o.tenant_id, o.id FROM countries c LEFT JOIN orders o ON o.id = c.id AND o.status = 'new' ${w};

SELECT o.id, i.id FROM orders o, items i WHERE o.tenant_id = i.tenant_id AND o.id = i.order_id AND o.qty > 2;
SELECT o.id, i.id FROM orders o, items i WHERE o.id = i.order_id AND i.n = 3;
SELECT count(*) FROM orders o CROSS JOIN items i;
SELECT count(*) FROM orders o CROSS JOIN countries c;
SELECT count(*) FROM orders, items, countries WHERE orders.tenant_id = items.tenant_id;
SELECT a.id, b.id FROM orders a JOIN orders b ON a.tenant_id = b.tenant_id AND a.id < b.id;
SELECT a.tenant_id, b.tenant_id FROM orders a JOIN orders b ON a.qty = b.qty AND a.tenant_id < b.tenant_id AND a.id = b.id;
SELECT o.tenant_id FROM orders o JOIN items i ON i.tenant_id = o.tenant_id JOIN orders p ON p.tenant_id = i.tenant_id AND p.id = i.id WHERE o.id = 1;
SELECT o.tenant_id, i.id, p.id FROM orders o JOIN items i USING (tenant_id) JOIN orders p USING (tenant_id) WHERE p.qty = i.n AND o.id = 2;
SELECT o.id, i.sku, c.name FROM orders o JOIN (items i JOIN countries c ON c.id = i.n) ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT o.id, x.sku FROM orders o LEFT JOIN (items i JOIN countries c ON c.id = i.n) AS x ON x.tenant_id = o.tenant_id AND x.order_id = o.id;
SELECT * FROM (orders o JOIN items i USING (tenant_id)) AS j (t, a, b) WHERE t = 3;
SELECT x.t, x.n, y.m FROM (SELECT tenant_id AS t, count(*) AS n FROM orders GROUP BY tenant_id) x JOIN (SELECT tenant_id AS t, count(*) AS m FROM items GROUP BY tenant_id) y ON x.t = y.t;
SELECT x.t, x.n, y.m FROM (SELECT tenant_id AS t, count(*) AS n FROM orders GROUP BY tenant_id) x FULL JOIN (SELECT tenant_id AS t, count(*) AS m FROM items GROUP BY tenant_id) y USING (t);
SELECT x.s, y.sku FROM (SELECT DISTINCT status AS s, id FROM orders) x JOIN (SELECT DISTINCT sku, n FROM items) y ON y.n = x.id;
SELECT o.tenant_id, v.x FROM orders o JOIN (VALUES (1, 'one'), (2, 'two'), (3, NULL)) v(k, x) ON v.k = o.qty;
SELECT o.tenant_id, v.x FROM (VALUES (1, 'one'), (2, 'two'), (30, 'thirty')) v(k, x) LEFT JOIN orders o ON v.k = o.tenant_id;
SELECT o.tenant_id, g FROM orders o JOIN generate_series(1, 3) g ON g = o.qty;
SELECT g, o.tenant_id FROM generate_series(1, 14) g LEFT JOIN orders o ON o.tenant_id = g AND o.id = 1;
SELECT r.sensor, e.id FROM readings r JOIN events e ON e.weight = r.value AND e.tenant = r.sensor;
SELECT e.at, o.id FROM events e JOIN orders o ON o.at < e.at AND o.at > e.at - interval '1 day' AND o.tenant_id = e.tenant;
SELECT v.region, c.name FROM visits v JOIN countries c ON c.region = v.region AND c.id = v.pages;
SELECT v.region, w.region, v.visitor FROM visits v JOIN visits w ON v.region = w.region AND v.visitor = w.visitor + 1;
SELECT v.region, w.pages FROM visits v JOIN visits w USING (region, visitor);
SELECT s.class, t.class, s.id FROM stock s JOIN stock t ON s.class = t.class AND s.id = t.pieces;
SELECT s.class, t.class, s.id FROM stock s JOIN stock t ON s.name = t.name AND s.class < t.class AND s.id = t.id;
SELECT d.id, e.id FROM devices d JOIN devices e ON d.id = e.id AND d.score > 3;
SELECT d.kind, u.name FROM devices d JOIN customers u ON u.tenant = d.tenant WHERE u.age > 22;
SELECT o.tenant_id, o.id FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE i.id IS NULL;
SELECT i.tenant_id, i.id FROM orders o RIGHT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE o.id IS NULL;
SELECT o.tenant_id, i.tenant_id FROM orders o FULL JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE o.id IS NULL OR i.id IS NULL;
SELECT c.name, count(o.id) FROM countries c LEFT JOIN orders o ON o.id = c.id GROUP BY c.name;
SELECT count(*) FROM countries c FULL JOIN orders o ON o.id = c.id;
SELECT count(*) FROM settings s FULL JOIN orders o ON o.tenant_id = s.tenant;
SELECT s.name, c.name FROM settings s JOIN countries c ON c.id = s.id;
SELECT s.name, c.name FROM settings s FULL JOIN countries c ON c.id = s.id;
SELECT a.id, b.id FROM countries a JOIN countries b ON a.region = b.region AND a.id <> b.id;
SELECT o.*, i.* FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.id = o.id WHERE o.tenant_id = 5;
SELECT o.id FROM orders o JOIN items o2 ON true WHERE o.tenant_id = 1 AND o2.tenant_id = 2;
SELECT o.id, i.id FROM orders o JOIN items i ON o.tenant_id = i.tenant_id + 1 AND o.id = i.id;
SELECT o.id, i.id FROM orders o JOIN items i ON o.tenant_id >= i.tenant_id AND o.tenant_id <= i.tenant_id AND o.id = i.id;
SELECT o.id, i.id FROM orders o JOIN items i ON o.tenant_id IS NOT DISTINCT FROM i.tenant_id AND o.id = i.id;
SELECT o.id, i.id FROM orders o JOIN items i ON (o.tenant_id, o.id) = (i.tenant_id, i.id);
SELECT o.id, i.id FROM orders o JOIN items i ON row(o.tenant_id, o.id) = row(i.tenant_id, i.order_id) WHERE o.qty > 0;
SELECT o.id, i.id FROM orders o JOIN items i ON o.tenant_id = i.tenant_id OR o.id = i.n WHERE o.qty = 4;
SELECT o.id, i.id FROM orders o JOIN items i ON NOT o.tenant_id <> i.tenant_id WHERE o.id = i.id;
SELECT o.id FROM orders o JOIN items i ON o.tenant_id = i.tenant_id::numeric AND o.id = i.id;
SELECT o.id FROM orders o JOIN readings r ON o.tenant_id = r.sensor AND r.seq = o.id;
SELECT 1 FROM orders o JOIN items i ON o.nosuch = i.id;
SELECT id FROM orders o JOIN items i ON o.tenant_id = i.tenant_id;
SELECT * FROM orders o JOIN items o ON true;
SELECT * FROM orders JOIN items USING (nosuch);
-- only: postgres
SELECT o.tenant_id, o.id, l.sku FROM orders o, LATERAL (SELECT sku FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id) l;
-- only: postgres
SELECT o.tenant_id, o.id, l.* FROM orders o LEFT JOIN LATERAL (SELECT id, n FROM items i WHERE i.tenant_id = o.tenant_id ORDER BY id DESC LIMIT 1) l ON true;
-- only: postgres
SELECT o.tenant_id, o.id, l.* FROM orders o LEFT JOIN LATERAL (SELECT tenant_id, id FROM items i WHERE i.n = o.qty ORDER BY tenant_id, id LIMIT 2) l ON true;
-- only: postgres
SELECT c.name, l.n, l.s FROM countries c CROSS JOIN LATERAL (SELECT count(*) AS n, sum(qty) AS s FROM orders o WHERE o.id = c.id) l;
-- only: postgres
SELECT o.tenant_id, l.x FROM orders o CROSS JOIN LATERAL (VALUES (o.qty), (o.id)) l(x) WHERE l.x > 2;
-- only: postgres
SELECT o.tenant_id, g FROM orders o, LATERAL generate_series(1, o.qty) g;
-- only: postgres
SELECT o.tenant_id, g FROM orders o, generate_series(o.id, o.qty) WITH ORDINALITY AS g(g, n) WHERE n < 3;
-- only: postgres
SELECT o.tenant_id, p FROM orders o, unnest(string_to_array(o.status, 'e')) p;
-- only: postgres
SELECT t.tenant_id, top.id FROM (SELECT DISTINCT tenant_id FROM orders) t, LATERAL (SELECT id FROM orders o WHERE o.tenant_id = t.tenant_id ORDER BY price DESC NULLS LAST, id LIMIT 1) top;
-- only: postgres
SELECT * FROM ROWS FROM (generate_series(1, 3), unnest(ARRAY['a', 'b'])) AS x(a, b) LEFT JOIN stock s ON s.class = x.b AND s.id = x.a;
-- params: 3
-- params: \N
SELECT o.id, i.id FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE o.tenant_id = $1;
-- params: 2 | new
SELECT o.tenant_id, i.id FROM orders o JOIN items i ON i.order_id = o.id AND i.n = $1 WHERE o.status = $2;
