-- GROUP BY of columns and expressions, HAVING, GROUPING SETS.

-- foreach g: status | qty | paid | day | tenant_id | id | note | price
-- foreach a: count(*) | sum(qty) | avg(price) | min(at) | max(note) | count(DISTINCT tenant_id) | bool_or(paid) | count(qty), sum(price), max(day)
SELECT ${g}, ${a} FROM orders GROUP BY ${g};
-- foreach g: qty % 2 | lower(status) | tenant_id % 3 | date_trunc('month', at) | extract(hour FROM at) | status IS NULL | qty > 1 | coalesce(status, 'none') | CASE WHEN price > 2 THEN 'high' ELSE 'low' END | tenant_id + id | at::date | length(note) | round(price) | tenant_id % 2, id % 2 | status, paid | tenant_id, status | paid, qty % 2 | upper(status), paid | tenant_id, id | id, tenant_id % 2
SELECT ${g}, count(*), sum(qty), max(price) FROM orders GROUP BY ${g};
-- foreach h: count(*) > 5 | sum(qty) > 10 | max(price) IS NULL | status IS NOT NULL | status > 'a' AND count(*) > 2 | avg(qty) > 2 | bool_or(paid) | count(*) > 5 OR min(qty) < 0 | count(DISTINCT tenant_id) > 4 | max(id) = min(id) | sum(qty) > (SELECT avg(qty) FROM orders) | status IN ('new', 'sent') | NOT count(*) > 5 | count(*) BETWEEN 3 AND 8 | true | false | NULL
SELECT status, count(*) FROM orders GROUP BY status HAVING ${h};
-- foreach h: count(*) > 2 | sum(qty) > 3 | tenant_id > 6 | tenant_id = 3 | max(status) = 'sent' | count(DISTINCT status) = count(*) | tenant_id IN (2, 5) AND count(*) > 1
SELECT tenant_id, sum(qty) FROM orders GROUP BY tenant_id HAVING ${h};
-- foreach a: count(*) | sum(pages) | max(ref) | avg(pages)
-- foreach g: region | visitor | region, visitor | ref | visitor % 2, region
SELECT ${g}, ${a} FROM visits GROUP BY ${g};
-- foreach g: sensor | seq | unit | sensor / 5 | unit, seq | sensor, unit
SELECT ${g}, count(value), sum(exact), avg(value) FROM readings GROUP BY ${g};
-- foreach g: kind | tenant | extract(month FROM at) | at::date | kind, tenant
SELECT ${g}, count(*), min(at), sum(weight) FROM events WHERE at > '2024-01-20' GROUP BY ${g};
-- foreach g: class | name | class, name | price > 2
SELECT ${g}, sum(pieces), avg(price) FROM stock GROUP BY ${g};
-- foreach g: country | age | left(email, 1) | name IS NULL, country
SELECT ${g}, count(*), sum(balance), avg(age) FROM customers GROUP BY ${g};
-- only: postgres
-- foreach a: array_agg(id ORDER BY tenant_id, id) | string_agg(note, '/' ORDER BY tenant_id, id) | json_agg(qty ORDER BY tenant_id, id) | jsonb_agg(price ORDER BY tenant_id, id) | stddev(qty) | variance(price) | mode() WITHIN GROUP (ORDER BY qty, tenant_id) | percentile_cont(0.5) WITHIN GROUP (ORDER BY price) | array_agg(DISTINCT qty) | bit_or(qty) | string_agg(DISTINCT note, ',') | sum(DISTINCT qty) | count(DISTINCT (qty, paid))
-- foreach g: status | tenant_id | paid
SELECT ${g}, ${a} FROM orders GROUP BY ${g};

SELECT status AS s, count(*) AS n FROM orders GROUP BY s;
SELECT status, count(*) FROM orders GROUP BY 1;
SELECT count(*), status FROM orders GROUP BY 2 ORDER BY 1 DESC, 2;
SELECT lower(status) AS status, count(*) FROM orders GROUP BY lower(status);
SELECT lower(status) AS s, count(*) FROM orders GROUP BY s ORDER BY s;
SELECT status FROM orders GROUP BY status;
SELECT count(*) FROM orders GROUP BY status;
SELECT count(*) FROM orders GROUP BY ();
SELECT tenant_id, id, status FROM orders GROUP BY tenant_id, id;
SELECT tenant_id, status || '!', count(*) FROM orders GROUP BY tenant_id, status;
SELECT status, sum(qty) + sum(id) AS x, sum(qty) * 2 FROM orders GROUP BY status;
SELECT status, sum(qty) FILTER (WHERE paid), count(*) FILTER (WHERE qty > 2) FROM orders GROUP BY status;
SELECT tenant_id, max(price) - min(price) FROM orders WHERE id < 4 GROUP BY tenant_id;
SELECT tenant_id, count(*) FROM orders WHERE tenant_id IN (3, 4, 5) GROUP BY tenant_id;
SELECT status, count(*) FROM orders WHERE tenant_id = 3 GROUP BY status;
SELECT o.tenant_id, count(i.id), sum(i.n) FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id GROUP BY o.tenant_id;
SELECT o.status, count(*) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id GROUP BY o.status;
SELECT i.sku, sum(o.price) FROM orders o JOIN items i ON i.order_id = o.id GROUP BY i.sku;
SELECT c.region, sum(o.qty) FROM orders o JOIN countries c ON c.id = o.id GROUP BY c.region;
SELECT c.name, count(*) FROM customers u JOIN countries c ON c.id = u.country GROUP BY c.id;
SELECT c.name, c.code, count(*) FROM customers u JOIN countries c ON c.id = u.country GROUP BY c.id, c.name ORDER BY c.id;
SELECT s, n FROM (SELECT status AS s, count(*) AS n FROM orders GROUP BY status) x WHERE n > 4;
SELECT n, count(*) FROM (SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id) x GROUP BY n;
SELECT status, count(*) FROM orders GROUP BY status ORDER BY count(*) DESC, status NULLS FIRST;
SELECT status, count(*) FROM orders GROUP BY status ORDER BY min(price), status LIMIT 2;
SELECT status FROM orders GROUP BY status HAVING count(*) = (SELECT max(n) FROM (SELECT count(*) AS n FROM orders GROUP BY status) x);
SELECT price, count(*) FROM orders GROUP BY price ORDER BY price NULLS FIRST;
SELECT balance::numeric(10,1) AS b, count(*) FROM customers GROUP BY b ORDER BY b;
SELECT 1, count(*) FROM orders GROUP BY 1;
SELECT 'x' AS x, count(*) FROM orders GROUP BY x;
SELECT NULL AS z, count(*) FROM orders GROUP BY z;
SELECT DISTINCT count(*) FROM orders GROUP BY status;
SELECT a, count(*) FROM nothing GROUP BY a;
SELECT status, (SELECT count(*) FROM countries) FROM orders GROUP BY status;
SELECT status, (SELECT max(i.n) FROM items i WHERE i.order_id = max(o.id)) FROM orders o GROUP BY status;
SELECT tenant_id, (SELECT count(*) FROM items i WHERE i.tenant_id = o.tenant_id) FROM orders o GROUP BY tenant_id;
SELECT qty % 2, count(*) FROM orders GROUP BY orders.qty % 2 ORDER BY orders.qty % 2;
SELECT lower(orders.status), count(status) FROM orders GROUP BY lower(status) ORDER BY lower(status);
SELECT o.qty % 2, count(*) FROM orders o GROUP BY qty % 2 HAVING o.qty % 2 > -1;
SELECT tenant_id % 2, count(*) FROM orders GROUP BY orders.tenant_id % 2;
SELECT status, qty FROM orders GROUP BY status;
SELECT status FROM orders GROUP BY nosuch;
SELECT status, count(*) FROM orders GROUP BY 3;
SELECT sum(qty) FROM orders GROUP BY sum(qty);

-- only: postgres
-- foreach g: GROUPING SETS ((status), ()) | GROUPING SETS ((status), (paid)) | GROUPING SETS ((status, paid), (status), ()) | ROLLUP (status, paid) | CUBE (status, paid) | status, ROLLUP (paid) | ROLLUP ((status, paid)) | GROUPING SETS (ROLLUP (status), CUBE (paid)) | GROUPING SETS ((), ()) | DISTINCT ROLLUP (status), ROLLUP (status, paid)
SELECT status, paid, count(*), sum(qty) FROM orders GROUP BY ${g};
-- only: postgres
-- foreach g: ROLLUP (tenant_id, status) | GROUPING SETS ((tenant_id), (tenant_id, status)) | CUBE (tenant_id, status)
SELECT tenant_id, status, grouping(tenant_id, status), max(price) FROM orders GROUP BY ${g};
-- only: postgres
SELECT tenant_id, status, sum(qty) FROM orders WHERE tenant_id = 3 GROUP BY ROLLUP (tenant_id, status);
-- only: postgres
SELECT status, grouping(status) AS g, count(*) FROM orders GROUP BY ROLLUP (status) HAVING grouping(status) = 1 OR count(*) > 5 ORDER BY g, status;
-- only: postgres
SELECT a, grouping(a), count(*) FROM nothing GROUP BY CUBE (a);
-- only: postgres
SELECT coalesce(region, 'all'), sum(pages) FROM visits GROUP BY ROLLUP (region) ORDER BY 1, 2;
-- params: 2
SELECT qty % $1, count(*) FROM orders GROUP BY 1;
-- params: 3
SELECT status, count(*) FROM orders GROUP BY status HAVING count(*) > $1;
-- params: x | 2
SELECT coalesce(status, $1), count(*) FROM orders WHERE qty <> $2 GROUP BY 1 ORDER BY 1;
SELECT qty % 3 AS qty, count(*) FROM orders GROUP BY orders.qty % 3 ORDER BY 1, 2;
SELECT o.tenant_id % 3 AS tenant_id, count(*) FROM orders o GROUP BY tenant_id % 3 ORDER BY 1;
-- only: postgres
SELECT status, o.status, lower(o.status), count(*) FROM orders o GROUP BY ROLLUP (status, o.status, lower(o.status));
-- HAVING alone: no row is read.
-- only: postgres
SELECT 1 AS one FROM orders WHERE 1 / (qty - qty) = 1 HAVING 1 < 2;
-- only: postgres
SELECT 1 AS one FROM orders WHERE 1 / (qty - qty) = 1 HAVING 1 > 2;

-- Rows without a type of their own.
-- only: postgres
-- foreach g: ROW(qty, paid) | ROW(status) | ROW(tenant_id, qty) | ROW(ROW(qty), paid) | ROW(qty % 2, status), paid
-- foreach a: count(*) | sum(price), max(id) | array_agg(id ORDER BY tenant_id, id) | count(DISTINCT status)
SELECT ${g}, ${a} FROM orders GROUP BY ${g};
-- only: postgres
SELECT count(*) FROM orders GROUP BY ROW(status, paid) HAVING ROW(status, paid) > ROW('new', true);
-- only: postgres
SELECT r, count(*) FROM (SELECT ROW(status, paid) AS r FROM orders) x GROUP BY r ORDER BY r;
-- only: postgres
SELECT array_agg(DISTINCT ROW(qty, paid)), count(DISTINCT ROW(status)) FROM orders;
-- only: postgres
SELECT status, count(DISTINCT ROW(qty, paid)) FROM orders GROUP BY status;
