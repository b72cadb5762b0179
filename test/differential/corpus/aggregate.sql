-- Every aggregate over all shards: alone, with FILTER, DISTINCT, ORDER BY, over NULLs and no rows.

-- foreach a: count(*) | count(qty) | count(status) | count(DISTINCT status) | count(DISTINCT qty) | count(DISTINCT (status, qty)) | sum(qty) | sum(DISTINCT qty) | sum(tenant_id) | sum(price) | sum(DISTINCT price) | avg(qty) | avg(DISTINCT qty) | avg(price) | avg(tenant_id) | min(qty) | max(qty) | min(status) | max(status) | min(day) | max(at) | min(price) | max(note) | bool_and(paid) | bool_or(paid) | every(paid) | bool_and(qty > -5) | sum(qty * price) | sum(qty) + count(*) | sum(qty) / count(qty) | max(qty) - min(qty) | sum(qty)::text || 'x' | coalesce(sum(qty), 0) | sum(CASE WHEN paid THEN 1 ELSE 0 END) | sum(qty) > 3 | max(length(status)) | avg(price)::numeric(10,4) | round(avg(qty), 2) | count(*) * 2 | count(NULL) | sum(NULL::integer) | sum(1) | min(tenant_id) | max(lower(status))
-- foreach w: | WHERE qty > 1 | WHERE tenant_id IN (1, 2, 3, 4, 5) | WHERE false
SELECT ${a} FROM orders ${w};
-- foreach a: count(*) | sum(qty) | avg(price) | min(status) | max(at) | bool_or(paid) | count(DISTINCT status) | string_agg(status, ',' ORDER BY tenant_id, id) | array_agg(id ORDER BY tenant_id, id)
-- foreach f: qty > 1 | paid | status = 'new' | status IS NULL | tenant_id = 3 | false | tenant_id > 5 AND price < 2
SELECT ${a} FILTER (WHERE ${f}) FROM orders;

-- only: postgres
-- foreach a: stddev(qty) | stddev_pop(qty) | stddev_samp(price) | variance(qty) | var_pop(price) | var_samp(qty) | bit_and(qty) | bit_or(qty) | bit_xor(qty) | bit_and(tenant_id) | bit_or(id) | array_agg(status ORDER BY tenant_id, id) | array_agg(DISTINCT status ORDER BY status) | array_agg(DISTINCT qty) | array_agg(price ORDER BY price, tenant_id, id) | array_agg(paid ORDER BY tenant_id DESC, id) | string_agg(status, '-' ORDER BY tenant_id, id) | string_agg(DISTINCT status, ',') | string_agg(DISTINCT status, ',' ORDER BY status DESC) | json_agg(qty ORDER BY tenant_id, id) | jsonb_agg(status ORDER BY tenant_id, id) | json_object_agg(tenant_id * 10 + id, qty ORDER BY tenant_id, id) | jsonb_object_agg(tenant_id * 10 + id, status) | mode() WITHIN GROUP (ORDER BY qty) | percentile_cont(0.5) WITHIN GROUP (ORDER BY qty) | percentile_disc(0.25) WITHIN GROUP (ORDER BY price) | percentile_disc(ARRAY[0.1, 0.9]) WITHIN GROUP (ORDER BY at) | rank(3) WITHIN GROUP (ORDER BY qty) | dense_rank(3) WITHIN GROUP (ORDER BY qty) | percent_rank(3) WITHIN GROUP (ORDER BY qty) | cume_dist(3) WITHIN GROUP (ORDER BY qty) | json_agg(o ORDER BY tenant_id, id) | array_agg(ARRAY[tenant_id, id] ORDER BY tenant_id, id) | max(ARRAY[qty, id]) | min(ARRAY[status]) | regr_count(qty, id) | max(at::time) | min(at - timestamp '2024-01-01') | sum(at - timestamp '2024-01-01') | avg(at - timestamp '2024-01-01') | range_agg(int4range(id, id + 1)) | count(o) | count(o.*) | array_agg(tenant_id ORDER BY qty NULLS FIRST, tenant_id, id) | string_agg(note, NULL ORDER BY tenant_id, id) | string_agg(note, status ORDER BY tenant_id, id) | any_value(1)
-- foreach w: | WHERE tenant_id > 6 | WHERE false
SELECT ${a} FROM orders o ${w};

-- only: postgres
-- foreach a: (qty * 0)::float8 * -1 | CASE WHEN id % 2 = 0 THEN 1e200 ELSE 2e200 END::float8 | CASE WHEN tenant_id = 1 THEN 1e200 ELSE 2e200 END::float8 | 1e200::float8 | CASE WHEN id = 2 THEN 'Infinity' ELSE '3' END::float8 | CASE WHEN id = 2 THEN 'NaN' ELSE '3' END::float8 | 1e30::real
SELECT avg(${a}) FROM orders;
SELECT tenant_id % 3, avg(${a}), count(${a}) FROM orders GROUP BY 1 ORDER BY 1;
-- loose
-- only: postgres
-- foreach a: sum(qty::double precision) | avg(price::double precision) | stddev(price::double precision) | variance(price::real) | corr(qty, id) | covar_pop(qty, id) | covar_samp(qty, price) | regr_slope(qty, id) | regr_intercept(qty, id) | regr_r2(qty, id) | regr_avgx(qty, id) | regr_sxx(qty, id) | sum(price::real) | min(price::real) | max(price::double precision)
SELECT ${a} FROM orders;

SELECT count(*), count(qty), sum(qty), min(qty), max(qty), avg(qty) FROM orders;
SELECT count(*) AS n, sum(price) AS total, avg(price) AS mean FROM orders WHERE paid;
SELECT count(DISTINCT status), count(DISTINCT qty), count(DISTINCT tenant_id) FROM orders;
SELECT count(DISTINCT status), count(status), sum(DISTINCT qty), sum(qty) FROM orders;
SELECT sum(n), sum(amount), count(*) FROM items;
SELECT min(email), max(email), count(name), sum(balance), avg(balance) FROM customers;
SELECT min(id::text), max(id::text), count(owner) FROM devices;
SELECT min(region), max(region), sum(pages), max(visitor) FROM visits;
SELECT sum(exact), avg(exact), min(exact), max(exact), sum(value), count(unit) FROM readings;
SELECT sum(exact) FROM readings WHERE sensor BETWEEN 4 AND 8;
SELECT avg(value) FROM readings WHERE sensor > 19;
SELECT min(at), max(at), count(kind), sum(weight) FROM events WHERE at < '2024-03-15';
SELECT max(price), min(price), sum(pieces) FROM stock WHERE class IN ('a', 'd');
SELECT sum(big), count(big), avg(big), max(name) FROM countries;
SELECT count(*), max(value) FROM settings;
SELECT 1 + count(*) FROM orders;
SELECT 'n=' || count(*) FROM orders;
SELECT max(qty) AS m, max(qty) + 1 AS n, -max(qty) AS o FROM orders;
SELECT sum(qty) FILTER (WHERE paid), sum(qty) FILTER (WHERE NOT paid), sum(qty) FROM orders;
SELECT count(*) FILTER (WHERE qty > 2) * 100 / count(*) FROM orders;
SELECT sum(qty) HAVING sum(qty) > 0 FROM orders;
SELECT sum(qty) FROM orders HAVING sum(qty) > 0;
SELECT sum(qty) FROM orders HAVING sum(qty) > 1000;
SELECT 'there' FROM orders HAVING count(*) > 3;
SELECT 'none' FROM orders HAVING count(*) > 1000;
SELECT count(*) FROM orders WHERE qty > (SELECT avg(qty) FROM orders);
SELECT count(*) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT sum(i.amount * o.price) FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT sum(i.amount) FROM orders o JOIN items i ON i.order_id = o.id;
SELECT count(*), count(i.id) FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
SELECT max(c.name), min(o.price) FROM orders o JOIN countries c ON c.id = o.id;
SELECT count(*) FROM orders, countries;
SELECT sum(x) FROM (SELECT max(qty) AS x FROM orders GROUP BY tenant_id) s;
SELECT sum(x) FROM (SELECT count(*) AS x FROM orders GROUP BY status) s;
SELECT max(x) - min(x) FROM (SELECT sum(price) AS x FROM orders GROUP BY status) s;
SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM items);
SELECT (SELECT max(qty) FROM orders) + (SELECT min(n) FROM items);
SELECT sum(tenant_id * 9223372036854775) FROM orders;
SELECT sum(9223372036854775807) FROM orders;
SELECT sum(9223372036854775807::bigint) FROM orders;
SELECT sum(2147483647) FROM orders;
SELECT sum(32000::smallint) FROM orders;
SELECT avg(9223372036854775807::bigint) FROM orders;
SELECT sum(0.1) FROM orders;
SELECT sum(1e-20::numeric), avg(1e20::numeric) FROM orders;
SELECT avg(1) FROM orders;
SELECT avg(id), avg(id::numeric), avg(id::numeric(20,10)) FROM orders;
SELECT avg(qty) FROM orders WHERE tenant_id = 3;
SELECT count(*) FROM orders WHERE tenant_id = 3;
SELECT sum(qty) FROM orders WHERE tenant_id = 3 AND false;
SELECT sum(qty / (id - 2)) FROM orders;
SELECT sum(1 / qty) FROM orders;
SELECT max(1 / (qty - 1)) FROM orders WHERE qty > 1;
SELECT sum(status) FROM orders;
SELECT sum(qty, id) FROM orders;
SELECT max(sum(qty)) FROM orders;
SELECT qty, sum(qty) FROM orders;
SELECT count(DISTINCT *) FROM orders;
SELECT sum(qty) FROM orders WHERE sum(qty) > 1;
-- only: postgres
SELECT array_agg(x ORDER BY x) FROM (SELECT DISTINCT qty AS x FROM orders) s;
-- only: postgres
SELECT array_agg(status ORDER BY status COLLATE "en-x-icu", tenant_id, id) FROM orders;
-- only: postgres
SELECT string_agg(name, ', ' ORDER BY name) FILTER (WHERE name < 'd') FROM customers;
-- only: postgres
SELECT json_agg(json_build_object('k', tenant_id, 'n', n) ORDER BY tenant_id) FROM (SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id) s;
-- only: postgres
SELECT jsonb_object_agg(class, n) FROM (SELECT class, sum(pieces) AS n FROM stock GROUP BY class) s;
-- params: 2
-- params: 100
SELECT count(*), sum(qty) FROM orders WHERE qty > $1;
-- params: 2 | 3
SELECT sum(qty * $1), count(*) FILTER (WHERE id = $2) FROM orders;
-- params: new
SELECT max(price) FILTER (WHERE status = $1), count(*) FROM orders;
-- params: ,
-- only: postgres
SELECT string_agg(status, $1 ORDER BY tenant_id, id) FROM orders;
-- foreach c: count(*) | sum(qty) | max(qty)
-- block
SET default_transaction_isolation TO 'repeatable read';
SELECT ${c} FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5);
RESET default_transaction_isolation;
-- end

-- Arguments whose types say how sums are added up: results of functions, of operators, of several types.
-- only: postgres
-- foreach a: sum(strpos(note, 'a')) | sum(length(status)) | avg(mod(qty, 3)) | sum(div(price, 3)) | sum(coalesce(price, qty)) | avg(coalesce(qty, 7)) | sum(nullif(qty, 2.5)) | avg(nullif(qty, 2.5)) | sum(width_bucket(price, 0, 10, 5)) | sum(qty & 3) | sum(greatest(qty, price)) | avg(ascii(status)) | sum(abs(price)) | sum(round(price, 1)) | sum(CASE WHEN paid THEN qty ELSE price END)
-- foreach w: | WHERE tenant_id > 6 | WHERE false
SELECT ${a} FROM orders o ${w};
-- only: postgres
-- foreach a: sum(extract(day FROM at)) | avg(extract(epoch FROM at)) | sum(age(at, timestamp '2024-01-01')) | sum(n)
SELECT ${a} FROM (SELECT at, count(*) AS n FROM orders GROUP BY tenant_id, at) AS s;
-- AT TIME ZONE calls timezone(), which is volatile for a time of day only.
-- only: postgres
SELECT date_trunc('day', at AT TIME ZONE 'UTC') AS d, count(*), sum(qty) FROM orders GROUP BY 1 ORDER BY 1;
