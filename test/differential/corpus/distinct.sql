-- DISTINCT and DISTINCT ON.

-- foreach c: status | qty | paid | price | day | at::date | note | tenant_id | id | status, paid | qty, status | tenant_id, status | tenant_id, id | qty % 2 | lower(status) | status IS NULL | price > 2, paid | qty + id, status | NULL | 1 | coalesce(status, note), qty | date_trunc('month', at) | round(price)
SELECT DISTINCT ${c} FROM orders;
-- foreach c: status | qty | paid | price | day | tenant_id | status, paid | qty % 2 | lower(status)
SELECT DISTINCT ${c} FROM orders WHERE tenant_id > 3 AND id < 4;
-- foreach c: kind | owner | score | kind, owner | seen
SELECT DISTINCT ${c} FROM devices;
-- foreach c: region | visitor | pages | ref | region, ref | visitor, pages
SELECT DISTINCT ${c} FROM visits;
-- foreach c: unit | value | sensor | seq | sensor % 5 | unit, value | sensor, unit
SELECT DISTINCT ${c} FROM readings;
-- foreach d: | DESC | DESC NULLS LAST | NULLS FIRST
-- foreach c: status | qty | price | paid | lower(status) | day
SELECT DISTINCT ${c} FROM orders ORDER BY ${c} ${d};
SELECT DISTINCT * FROM stock;
SELECT DISTINCT o.* FROM orders o WHERE o.qty > 1;
SELECT DISTINCT ROW(status, paid) FROM orders;
SELECT DISTINCT country, age FROM customers ORDER BY age NULLS FIRST, country DESC;
SELECT count(*) FROM (SELECT DISTINCT status FROM orders) x;
SELECT count(*), count(status) FROM (SELECT DISTINCT status, qty FROM orders) x;
SELECT DISTINCT i.sku, o.status FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT DISTINCT o.status FROM orders o JOIN items i ON i.order_id = o.id;
SELECT DISTINCT count(*) FROM orders GROUP BY tenant_id;
SELECT DISTINCT tenant_id, count(*) FROM orders GROUP BY tenant_id, status;
SELECT DISTINCT sum(qty) FROM orders;
SELECT DISTINCT max(qty), status FROM orders GROUP BY status ORDER BY 1 DESC NULLS LAST, 2;
SELECT DISTINCT status FROM orders WHERE status IN (SELECT status FROM orders WHERE qty > 3);
SELECT DISTINCT tenant_id FROM orders WHERE tenant_id IN (2, 4, 6);
SELECT DISTINCT qty FROM orders WHERE tenant_id = 3;
SELECT DISTINCT numerical FROM (SELECT price::numeric AS numerical FROM orders) x ORDER BY 1;
SELECT DISTINCT x FROM (VALUES (1.0), (1.00), (2.5)) v(x), nothing;
SELECT ALL status FROM orders;

SELECT DISTINCT ON (status) status, qty, tenant_id, id FROM orders ORDER BY status, qty, tenant_id, id;
SELECT DISTINCT ON (status) status, tenant_id, id FROM orders ORDER BY status DESC, tenant_id DESC, id;
SELECT DISTINCT ON (status, paid) status, paid, tenant_id, id FROM orders ORDER BY status, paid, tenant_id, id;
SELECT DISTINCT ON (paid, status) tenant_id, id FROM orders ORDER BY status, paid NULLS FIRST, tenant_id, id DESC;
SELECT DISTINCT ON (tenant_id) tenant_id, id, qty FROM orders ORDER BY tenant_id, qty DESC NULLS LAST, id;
SELECT DISTINCT ON (id) id, tenant_id, at FROM orders ORDER BY id, at DESC, tenant_id;
SELECT DISTINCT ON (lower(status)) lower(status), status, tenant_id, id FROM orders ORDER BY lower(status), tenant_id, id;
SELECT DISTINCT ON (qty % 2) qty % 2 AS odd, tenant_id, id FROM orders ORDER BY qty % 2, tenant_id, id;
SELECT DISTINCT ON (1) status, tenant_id FROM orders ORDER BY 1, tenant_id, id;
SELECT DISTINCT ON (region) * FROM visits ORDER BY region, pages NULLS FIRST, visitor;
SELECT DISTINCT ON (kind) id, kind FROM devices ORDER BY kind, id;
SELECT DISTINCT ON (unit) * FROM readings ORDER BY unit, exact DESC NULLS LAST, sensor, seq;
SELECT DISTINCT ON (status) status, tenant_id, id FROM orders ORDER BY status, tenant_id, id LIMIT 2;
SELECT DISTINCT ON (status) status, tenant_id, id FROM orders ORDER BY status, tenant_id, id LIMIT 2 OFFSET 1;
SELECT DISTINCT ON (o.tenant_id) o.tenant_id, i.sku FROM orders o JOIN items i USING (tenant_id) ORDER BY o.tenant_id, i.sku, i.id, o.id;
SELECT * FROM (SELECT DISTINCT ON (status) status, qty FROM orders ORDER BY status, qty, tenant_id) x WHERE qty > 0;
SELECT DISTINCT ON (status) status, qty FROM orders ORDER BY qty;
SELECT DISTINCT status FROM orders ORDER BY qty;
-- params: 2
SELECT DISTINCT qty % $1 FROM orders;

-- Rows without a type of their own.
-- only: postgres
-- foreach d: ROW(qty, paid) | (qty, paid) | ROW(status), qty | ROW(tenant_id, qty) AS r | ROW(ROW(qty)) | ARRAY[ROW(qty, paid)]
SELECT DISTINCT ${d} FROM orders;
-- only: postgres
SELECT DISTINCT ROW(qty, paid) AS r FROM orders ORDER BY r;
-- only: postgres
SELECT DISTINCT ON (ROW(qty, paid)) qty, paid, tenant_id, id FROM orders ORDER BY ROW(qty, paid), tenant_id, id;
-- only: postgres
SELECT ROW(status, qty) FROM orders ORDER BY 1;
-- only: postgres
SELECT ROW(tenant_id, id) AS r, note FROM orders ORDER BY r LIMIT 5;
-- only: postgres
SELECT tenant_id, id FROM orders ORDER BY ROW(qty, tenant_id, id) DESC LIMIT 7;
-- only: postgres
SELECT ROW(qty, paid) FROM orders UNION SELECT ROW(n, true) FROM items;
-- only: postgres
SELECT a.r FROM (SELECT ROW(qty, paid) AS r FROM orders) a JOIN (SELECT DISTINCT ROW(qty, paid) AS r FROM orders) b ON a.r = b.r;
-- only: postgres
SELECT rank() OVER (PARTITION BY ROW(paid) ORDER BY ROW(tenant_id, id)), id FROM orders;
-- only: postgres
SELECT max(r::text) FROM (SELECT ROW(qty, paid) AS r FROM orders) x;
