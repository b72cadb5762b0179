-- Window functions: frames, partitions by the shard key and not.

-- foreach f: row_number() | rank() | dense_rank() | percent_rank() | cume_dist() | ntile(3) | lag(qty) | lag(qty, 2, -1) | lead(status) | lead(id, 1, 0) | first_value(qty) | last_value(qty) | nth_value(id, 2) | count(*) | count(qty) | sum(qty) | avg(price) | min(at) | max(note) | sum(price) | bool_or(paid)
-- foreach w: PARTITION BY tenant_id ORDER BY id | PARTITION BY status ORDER BY tenant_id, id | ORDER BY tenant_id, id | ORDER BY at DESC, tenant_id, id
SELECT tenant_id, id, ${f} OVER (${w}) FROM orders;
-- foreach w: PARTITION BY tenant_id | PARTITION BY status | PARTITION BY qty % 2, paid | | PARTITION BY tenant_id, status | PARTITION BY id
SELECT tenant_id, id, count(*) OVER (${w}), sum(qty) OVER (${w}), max(price) OVER (${w}) FROM orders;
-- foreach fr: ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING | ROWS UNBOUNDED PRECEDING | ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING | ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING | RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW | GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW | ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW | ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING EXCLUDE TIES
-- foreach p: PARTITION BY tenant_id | PARTITION BY status |
SELECT tenant_id, id, sum(qty) OVER (${p} ORDER BY tenant_id, id ${fr}) AS s FROM orders;
-- only: postgres
-- foreach fr: RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING | RANGE BETWEEN 2 PRECEDING AND CURRENT ROW | RANGE BETWEEN CURRENT ROW AND 3 FOLLOWING
SELECT tenant_id, id, sum(qty) OVER (PARTITION BY id ORDER BY tenant_id ${fr}) FROM orders;
-- only: postgres
SELECT tenant_id, id, count(*) OVER (ORDER BY at RANGE BETWEEN interval '6 hours' PRECEDING AND CURRENT ROW) FROM orders;
SELECT tenant_id, id, sum(qty) OVER w, count(*) OVER w FROM orders WINDOW w AS (PARTITION BY tenant_id ORDER BY id);
SELECT tenant_id, id, sum(qty) OVER (w ORDER BY id), count(*) OVER w FROM orders WINDOW w AS (PARTITION BY tenant_id);
SELECT tenant_id, id, sum(qty) FILTER (WHERE paid) OVER (PARTITION BY tenant_id) FROM orders;
SELECT tenant_id, sum(count(*)) OVER (ORDER BY tenant_id) FROM orders GROUP BY tenant_id;
SELECT status, count(*), rank() OVER (ORDER BY count(*) DESC) FROM orders GROUP BY status;
SELECT status, sum(qty), sum(sum(qty)) OVER () FROM orders GROUP BY status;
SELECT tenant_id, count(*), count(*) * 100 / sum(count(*)) OVER () FROM orders GROUP BY tenant_id;
SELECT * FROM (SELECT tenant_id, id, row_number() OVER (PARTITION BY tenant_id ORDER BY id) AS r FROM orders) x WHERE r = 2;
SELECT * FROM (SELECT tenant_id, id, row_number() OVER (ORDER BY tenant_id, id) AS r FROM orders) x WHERE r BETWEEN 3 AND 6;
SELECT * FROM (SELECT tenant_id, id, count(*) OVER (PARTITION BY tenant_id) AS n FROM orders) x WHERE tenant_id = 3;
SELECT tenant_id, id, row_number() OVER (ORDER BY price DESC NULLS LAST, tenant_id, id) AS r FROM orders ORDER BY r LIMIT 5;
SELECT DISTINCT status, count(*) OVER (PARTITION BY status) FROM orders;
SELECT tenant_id, id, count(*) OVER () FROM orders ORDER BY tenant_id, id LIMIT 3;
SELECT tenant_id, id FROM orders ORDER BY row_number() OVER (ORDER BY tenant_id, id) DESC;
SELECT tenant_id, id, qty - lag(qty) OVER (PARTITION BY tenant_id ORDER BY id) AS d FROM orders;
SELECT sensor, seq, exact, avg(exact) OVER (PARTITION BY sensor) FROM readings;
SELECT sensor, seq, sum(value) OVER (PARTITION BY unit ORDER BY sensor, seq) FROM readings;
SELECT sensor, row_number() OVER (PARTITION BY sensor ORDER BY seq DESC) FROM readings WHERE sensor BETWEEN 5 AND 12;
SELECT region, visitor, rank() OVER (PARTITION BY region ORDER BY pages NULLS FIRST) FROM visits;
SELECT region, visitor, sum(pages) OVER (PARTITION BY region, visitor) FROM visits;
SELECT at, lag(at) OVER (ORDER BY at) FROM events;
SELECT class, id, dense_rank() OVER (PARTITION BY class ORDER BY price NULLS LAST) FROM stock;
SELECT o.tenant_id, i.id, sum(i.n) OVER (PARTITION BY o.tenant_id) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT o.tenant_id, i.id, count(*) OVER (PARTITION BY i.sku) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT tenant_id, id, rank() OVER (PARTITION BY tenant_id ORDER BY id) FROM orders WHERE tenant_id = 3;
SELECT id, sum(id) OVER (ORDER BY id) FROM countries;
SELECT a, count(*) OVER () FROM nothing;
SELECT rank() OVER () FROM orders WHERE rank() OVER () > 1;
SELECT sum(rank() OVER ()) FROM orders;
SELECT id, count(*) OVER w FROM orders;
SELECT lag(qty) FROM orders;
-- only: postgres
SELECT tenant_id, id, array_agg(id) OVER (PARTITION BY tenant_id ORDER BY id) FROM orders;
-- only: postgres
SELECT tenant_id, id, string_agg(status, ',') OVER (ORDER BY tenant_id, id ROWS 2 PRECEDING) FROM orders;
-- params: 2
SELECT tenant_id, id, ntile($1) OVER (PARTITION BY tenant_id ORDER BY id) FROM orders;
-- params: 1
SELECT tenant_id, id, lag(qty, $1) OVER (ORDER BY tenant_id, id) FROM orders;
