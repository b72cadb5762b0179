-- ORDER BY: every type, NULLS, collations, expressions, hidden columns.

-- foreach d: | ASC | DESC | NULLS FIRST | DESC NULLS LAST
-- foreach c: qty | price | status | day | at | paid | note | qty + price | -qty | lower(status) | length(note) | qty IS NULL | qty % 3 | extract(day FROM day) | coalesce(status, note) | CASE WHEN paid THEN 1 ELSE 0 END | price::text | tenant_id * id % 5 | at::date | abs(qty)
SELECT tenant_id, id, status FROM orders ORDER BY ${c} ${d}, tenant_id, id;
-- foreach d: | DESC | NULLS FIRST
-- foreach c: email | name | tenant | country | age | balance | lower(name) | name COLLATE "C" | balance::integer
SELECT name, country, balance FROM customers ORDER BY ${c} ${d}, email DESC;
-- foreach d: | DESC
SELECT id, kind FROM devices ORDER BY id ${d};
-- foreach d: | DESC
-- foreach c: owner | kind | score | seen
SELECT kind, score FROM devices ORDER BY ${c} ${d}, id ${d};
-- foreach d: | DESC
SELECT * FROM visits ORDER BY region ${d}, visitor;
-- foreach d: | DESC
-- foreach c: exact | value | unit | sensor | seq
SELECT * FROM readings ORDER BY ${c} ${d}, sensor ${d}, seq;
-- foreach d: | DESC NULLS LAST
-- foreach c: at | kind | weight | tenant
SELECT * FROM events ORDER BY ${c} ${d}, at;
-- foreach d: | DESC
-- foreach c: name | price | pieces | class
SELECT * FROM stock ORDER BY ${c} ${d}, class, id;

SELECT qty, status FROM orders ORDER BY 1, 2, tenant_id, id;
SELECT qty, status FROM orders ORDER BY 2 DESC, 1, tenant_id, id;
SELECT qty AS q, status AS s FROM orders ORDER BY q, s, tenant_id, id;
SELECT qty AS status, status AS qty FROM orders ORDER BY qty, status, tenant_id, id;
SELECT -qty AS qty FROM orders ORDER BY qty, tenant_id, id;
SELECT -qty AS qty FROM orders ORDER BY orders.qty, tenant_id, id;
SELECT qty + 1 AS a, qty + 2 AS b FROM orders ORDER BY a DESC NULLS LAST, b, tenant_id, id;
SELECT status FROM orders ORDER BY tenant_id DESC, id DESC;
SELECT id FROM orders ORDER BY orders.tenant_id, orders.id;
SELECT o.id FROM orders o ORDER BY o.tenant_id, o.id;
SELECT * FROM orders ORDER BY tenant_id, id;
SELECT * FROM orders o ORDER BY at, tenant_id, id;
SELECT tenant_id, id, tenant_id + id AS s FROM orders ORDER BY s, 1;
-- order: 1
SELECT qty FROM orders ORDER BY qty;
-- order: 1
SELECT status, id FROM orders ORDER BY status DESC;
-- order: 2
SELECT id, paid FROM orders ORDER BY paid;
SELECT tenant_id, id FROM orders ORDER BY tenant_id USING >, id USING <;
SELECT tenant_id, id FROM orders ORDER BY (tenant_id, id) DESC;
SELECT tenant_id, id FROM orders ORDER BY row(status, qty), tenant_id, id;
SELECT tenant_id, id FROM orders ORDER BY status = 'new', qty > 2, tenant_id, id;
SELECT tenant_id, id FROM orders ORDER BY 'x'::text, tenant_id, id;
SELECT tenant_id, id FROM orders WHERE qty > 1 ORDER BY price DESC NULLS LAST, tenant_id, id;
SELECT tenant_id, id FROM orders WHERE tenant_id IN (1, 2, 3, 4) ORDER BY id, tenant_id;
SELECT sensor, seq FROM readings WHERE sensor BETWEEN 3 AND 15 ORDER BY sensor DESC, seq;
SELECT sensor, seq FROM readings WHERE sensor > 8 ORDER BY value NULLS FIRST, sensor, seq;
SELECT class, id FROM stock WHERE class IN ('a', 'b') ORDER BY id DESC, class DESC;
SELECT name FROM customers WHERE name IS NOT NULL ORDER BY name;
SELECT name FROM customers WHERE name IS NOT NULL ORDER BY lower(name) DESC, name;
-- only: postgres
SELECT name FROM customers WHERE name IS NOT NULL ORDER BY name COLLATE "POSIX";
-- only: postgres
SELECT name FROM customers WHERE name IS NOT NULL ORDER BY name COLLATE "en-x-icu";
-- only: postgres
SELECT name, email FROM customers ORDER BY name COLLATE "de-x-icu" DESC, email COLLATE "C";
-- only: postgres
SELECT tenant_id, id, status FROM orders ORDER BY status COLLATE "en-x-icu" NULLS FIRST, tenant_id, id;
-- only: postgres
SELECT tenant_id, id, status FROM orders ORDER BY status COLLATE "en-x-icu" DESC, tenant_id, id LIMIT 9;
SELECT balance FROM customers ORDER BY balance, email;
SELECT round(balance, 1) AS b FROM customers ORDER BY b DESC, email;
SELECT balance + country FROM customers ORDER BY balance + country, email;
SELECT price * 1.0 AS p, price FROM orders ORDER BY p, tenant_id, id;
SELECT price::double precision AS f FROM orders ORDER BY f, tenant_id, id;
SELECT price::double precision AS f FROM orders ORDER BY 1 DESC NULLS LAST, tenant_id, id;
SELECT at::time AS tm, tenant_id, id FROM orders ORDER BY tm, tenant_id, id;
SELECT sensor::text AS s FROM readings WHERE seq = 1 ORDER BY s;
SELECT sensor::text AS s FROM readings WHERE seq = 1 ORDER BY s DESC;
SELECT paid, count(*) FROM orders GROUP BY paid ORDER BY paid NULLS FIRST;
SELECT name, length(name) FROM customers ORDER BY length(name), name, email;
SELECT n.id FROM (SELECT tenant_id, id FROM orders ORDER BY id) n ORDER BY n.tenant_id, n.id;
SELECT tenant_id, id FROM orders ORDER BY tenant_id = 5 DESC, tenant_id, id;
SELECT tenant_id, id FROM orders ORDER BY tenant_id % 3, id DESC, tenant_id;
SELECT region, visitor FROM visits ORDER BY length(region), region, -visitor;
SELECT ref, pages FROM visits ORDER BY ref NULLS FIRST, pages DESC NULLS LAST, region, visitor;
SELECT tenant_id, count(*) AS n FROM orders GROUP BY tenant_id ORDER BY n DESC, tenant_id;
SELECT tenant_id, sum(qty) FROM orders GROUP BY tenant_id ORDER BY sum(qty) NULLS FIRST, tenant_id;
SELECT tenant_id, sum(qty) FROM orders GROUP BY 1 ORDER BY 2 DESC, 1 DESC;
SELECT status FROM orders GROUP BY status ORDER BY max(price) DESC, status;
SELECT DISTINCT status FROM orders ORDER BY status;
SELECT DISTINCT status, qty FROM orders ORDER BY qty DESC, status;
SELECT tenant_id, id FROM orders ORDER BY tenant_id, id FOR UPDATE;
SELECT tenant_id, id FROM orders WHERE tenant_id = 3 ORDER BY id FOR UPDATE;
-- params: 2
SELECT tenant_id, id FROM orders ORDER BY tenant_id % $1, tenant_id, id;
-- params: x
SELECT name FROM customers ORDER BY coalesce(name, $1), email;
