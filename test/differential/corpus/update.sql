-- UPDATE: many shards, FROM, subqueries, RETURNING, keys that move rows.

UPDATE orders SET status = 'all';
UPDATE orders SET qty = qty + 1 WHERE qty > 1;
UPDATE orders SET qty = qty + 1, price = price * 2, note = note || '!' WHERE paid RETURNING tenant_id, id, qty, price, note;
UPDATE orders SET status = NULL WHERE status = 'all' AND id = 1 RETURNING *;
UPDATE orders SET qty = DEFAULT WHERE id = 4;
UPDATE orders SET (status, note) = ('pair', 'pair') WHERE id = 2;
UPDATE orders SET (status, note) = ROW('row', upper(note)) WHERE id = 3;
UPDATE orders AS o SET status = 'alias' WHERE o.qty = 3 RETURNING o.tenant_id, o.id;
UPDATE orders SET qty = 5 WHERE tenant_id IN (1, 2, 3, 4);
UPDATE orders SET qty = 6 WHERE tenant_id = 3;
UPDATE orders SET qty = 7 WHERE tenant_id = 3 OR tenant_id = 8 RETURNING tenant_id, id;
UPDATE orders SET qty = 8 WHERE tenant_id > 9;
UPDATE orders SET qty = 9 WHERE false;
UPDATE orders SET qty = CASE WHEN paid THEN 1 ELSE id END, day = day + 1, at = at + interval '1 hour' WHERE day IS NOT NULL;
UPDATE readings SET value = sensor WHERE sensor BETWEEN 3 AND 10 RETURNING sensor, seq, value;
UPDATE readings SET exact = exact / 3, unit = lower(unit) WHERE unit IS NOT NULL;
UPDATE events SET weight = 0 WHERE at < '2024-02-15' AND weight IS NULL RETURNING at;
UPDATE stock SET price = price + 0.005 WHERE class IN ('a', 'b', 'c');
UPDATE customers SET age = age + 1, balance = -balance RETURNING email, age;
UPDATE devices SET seen = timestamp '2024-06-01', score = NULL WHERE kind = 'watch' RETURNING kind, seen;
UPDATE visits SET pages = coalesce(pages, 0) + visitor WHERE visitor > 2;
UPDATE countries SET name = upper(name);
UPDATE countries SET name = 'x' WHERE id > 3 RETURNING id, name;
UPDATE countries SET big = big * 1000000000 WHERE id = 6;
UPDATE settings SET value = 'set' RETURNING *;
UPDATE nothing SET a = 1;

UPDATE orders SET qty = 1 / (id - 2);
UPDATE orders SET price = 99999999.99 * id;
UPDATE orders SET id = NULL WHERE id = 1;
UPDATE orders SET id = 1;
UPDATE orders SET nosuch = 1;
UPDATE orders SET qty = 'x';
UPDATE orders SET qty = 1 WHERE nosuch = 1;
UPDATE nosuch SET a = 1;
UPDATE orders SET qty = 1, qty = 2;
UPDATE orders SET qty = sum(id);
UPDATE orders SET qty = (SELECT id FROM items);

UPDATE orders o SET note = i.sku FROM items i WHERE i.tenant_id = o.tenant_id AND i.order_id = o.id AND i.id = 2;
UPDATE orders o SET note = i.sku FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = o.id RETURNING o.tenant_id, o.id, i.sku, o.note;
UPDATE orders o SET qty = i.s FROM (SELECT tenant_id, sum(n) AS s FROM items GROUP BY tenant_id) i WHERE i.tenant_id = o.tenant_id;
UPDATE orders o SET note = c.name FROM countries c WHERE c.id = o.id;
UPDATE orders o SET note = s.name FROM settings s WHERE s.id = o.id RETURNING o.tenant_id, s.name;
UPDATE orders o SET qty = d.score FROM (SELECT tenant, max(score) AS score FROM devices GROUP BY tenant) d WHERE d.tenant = o.tenant_id;
UPDATE orders o SET note = v.x FROM (VALUES (1, 'one'), (2, 'two')) v(k, x) WHERE v.k = o.qty;
UPDATE orders o SET status = p.status FROM orders p WHERE p.tenant_id = o.tenant_id AND p.id = o.id + 1;
UPDATE orders o SET qty = r.value FROM readings r WHERE r.sensor = o.tenant_id AND r.seq = o.id;
UPDATE orders SET qty = (SELECT max(n) FROM items i WHERE i.tenant_id = orders.tenant_id);
UPDATE orders SET qty = (SELECT count(*) FROM items) WHERE id = 1;
UPDATE orders SET qty = (SELECT count(*) FROM items i WHERE i.order_id = orders.id) RETURNING tenant_id, id, qty;
UPDATE orders SET status = 'in' WHERE tenant_id IN (SELECT tenant_id FROM items WHERE n = 1);
UPDATE orders SET status = 'ex' WHERE EXISTS (SELECT 1 FROM items i WHERE i.tenant_id = orders.tenant_id AND i.order_id = orders.id);
UPDATE orders SET status = 'nex' WHERE NOT EXISTS (SELECT 1 FROM items i WHERE i.order_id = orders.id AND i.n = orders.qty);
UPDATE orders SET status = 'max' WHERE qty = (SELECT max(qty) FROM orders);
UPDATE orders SET status = 'avg' WHERE price > (SELECT avg(price) FROM orders p WHERE p.tenant_id = orders.tenant_id) RETURNING tenant_id, id;
UPDATE orders SET status = 'top' WHERE (tenant_id, id) IN (SELECT tenant_id, id FROM orders ORDER BY price DESC NULLS LAST, tenant_id, id LIMIT 4);
UPDATE orders SET status = 'dev' WHERE tenant_id = ANY (SELECT tenant FROM devices WHERE kind = 'phone');
WITH x AS (SELECT tenant_id, max(id) AS id FROM items GROUP BY tenant_id) UPDATE orders o SET note = 'cte' FROM x WHERE x.tenant_id = o.tenant_id AND x.id = o.id + 1;
WITH x AS (SELECT avg(qty) AS a FROM orders) UPDATE orders SET note = 'above' WHERE qty > (SELECT a FROM x) RETURNING tenant_id, id;
UPDATE countries SET name = (SELECT max(status) FROM orders o WHERE o.id = countries.id);
UPDATE countries c SET code = 'o' FROM orders o WHERE o.id = c.id AND o.tenant_id = 3;
UPDATE settings SET value = (SELECT count(*)::text FROM orders o WHERE o.tenant_id = settings.tenant);

UPDATE orders SET tenant_id = tenant_id + 1000 WHERE tenant_id = 3;
UPDATE orders SET tenant_id = 2000 WHERE tenant_id = 4 AND id = 1 RETURNING *;
UPDATE orders SET tenant_id = tenant_id + 3000 WHERE id = 2;
UPDATE orders SET tenant_id = tenant_id;
UPDATE orders SET tenant_id = 5 WHERE tenant_id = 5;
UPDATE orders SET tenant_id = 1, id = tenant_id * 100 + id WHERE tenant_id IN (6, 7, 8) RETURNING tenant_id, id, status;
UPDATE orders SET tenant_id = 1 WHERE id = 1;
UPDATE orders SET tenant_id = NULL WHERE id = 1;
UPDATE items SET tenant_id = tenant_id + 50, n = 0 WHERE n = 1 RETURNING tenant_id, id;
UPDATE customers SET email = upper(email) WHERE age > 24 RETURNING email, name;
UPDATE devices SET id = md5(id::text)::uuid WHERE kind = 'phone';
UPDATE visits SET region = 'moved', visitor = visitor + 100 WHERE region = 'us';
UPDATE visits SET region = region || visitor WHERE pages = 2;
UPDATE readings SET sensor = 30 - sensor WHERE seq = 1;
UPDATE readings SET sensor = sensor + 1 WHERE sensor = 3;
UPDATE events SET at = at + interval '30 days' WHERE kind = 'err';
UPDATE stock SET class = 'd' , id = id + 100 WHERE class = 'a' RETURNING class, id;
-- params: 2
UPDATE orders SET qty = qty + $1 WHERE id > $1;
-- params: x | 2
UPDATE orders SET status = $1 WHERE qty = $2 RETURNING tenant_id, id;
-- params: {1,2,3,4,5}
UPDATE orders SET note = 'arr' WHERE tenant_id = ANY ($1);
-- params: 5 | 6000
UPDATE orders SET tenant_id = $2 WHERE tenant_id = $1 RETURNING id;
