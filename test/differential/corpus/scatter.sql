-- Filters, projections and expressions over all shards.

-- foreach t: orders | items | customers | devices | visits | readings | events | stock | countries | settings | nothing
SELECT count(*) FROM ${t};
-- foreach t: orders | items | customers | devices | visits | readings | events | stock | countries | settings | nothing
SELECT * FROM ${t};
-- foreach t: orders | items | customers | devices | visits | readings | events | stock | countries | settings | nothing
SELECT x.* FROM ${t} AS x;
-- foreach t: orders | items | customers | visits | readings | stock
TABLE ${t};

-- foreach c: qty = 3 | qty <> 3 | qty > 2 | qty <= 1 | qty IS NULL | qty IS NOT NULL | qty BETWEEN 1 AND 4 | qty NOT BETWEEN 1 AND 4 | qty IN (1, 3, 5) | qty NOT IN (1, 3) | qty IN (1, NULL) | qty NOT IN (1, NULL) | qty IS DISTINCT FROM 3 | qty IS NOT DISTINCT FROM NULL | NOT qty = 3 | qty % 2 = 0 | -qty < 0 | qty * 2 > id | (qty + id) % 3 = 1 | qty = ANY (ARRAY[1, 2]) | qty <> ALL (ARRAY[1, 2]) | abs(qty) = 1
SELECT tenant_id, id, qty FROM orders WHERE ${c};
-- foreach c: price = 1.5 | price > 3 | price < 0 | price IS NULL | price BETWEEN -1 AND 2.25 | round(price) = 2 | price * 2 = 3 | price + qty > 5 | price::integer = 1 | price IN (0.25, 1.5, 2)
SELECT id, price, price * 2 AS double FROM orders WHERE ${c};
-- foreach c: status = 'new' | status <> 'new' | status LIKE 'o%' | status ILIKE 'o%' | status NOT LIKE '%e%' | status IS NULL | status > 'new' | lower(status) = 'open' | status IN ('new', 'sent') | length(status) = 4 | status || note = 'openaxx' | coalesce(status, 'none') = 'none' | status < 'a' | status >= 'Open' AND status <= 'new'
SELECT tenant_id, id, status FROM orders WHERE ${c};
-- foreach c: paid | NOT paid | paid IS TRUE | paid IS NOT TRUE | paid IS FALSE | paid IS UNKNOWN | paid = (qty > 1) | paid OR qty = 2 | paid AND qty = 2 | paid IS NOT UNKNOWN
SELECT tenant_id, id, paid FROM orders WHERE ${c};
-- foreach c: day = '2024-02-10' | day > date '2024-02-20' | day IS NULL | day BETWEEN '2024-02-01' AND '2024-02-15' | extract(month FROM day) = 3 | day + 3 > '2024-03-01' | day - date '2024-02-01' = 5 | date_trunc('month', at) = '2024-02-01' | at < '2024-02-01' | at >= timestamp '2024-02-02 10:00' | at::date = day | at - interval '1 day' < '2024-01-31 12:00'
SELECT tenant_id, id, day, at FROM orders WHERE ${c};

SELECT 1 FROM orders;
SELECT NULL FROM orders WHERE qty > 3;
SELECT 'x' AS x, 1.50 AS n, true AS b FROM stock;
SELECT id AS "Mixed Case", qty AS qty2, qty FROM orders;
SELECT id, id, id FROM readings WHERE value > 2;
SELECT sensor, seq, value, value + 1 AS next, -value AS minus, value * value AS square FROM readings;
SELECT CASE WHEN value > 2 THEN 'high' WHEN value IS NULL THEN 'none' ELSE 'low' END AS level, sensor FROM readings;
SELECT CASE unit WHEN 'C' THEN exact WHEN 'F' THEN exact / 2 END FROM readings;
SELECT coalesce(value, -1), nullif(value, 2), greatest(value, seq), least(value, seq, 3) FROM readings;
SELECT sensor::text || '/' || seq FROM readings;
SELECT (sensor, seq) FROM readings WHERE sensor < 3;
SELECT r FROM readings r WHERE sensor = 5;
SELECT r.*, r.value IS NULL AS empty FROM readings AS r;
SELECT row(value, unit) IS NULL AS nothing, sensor FROM readings;
SELECT upper(name), lower(name), initcap(name), length(name), reverse(name) FROM customers;
SELECT name, substr(name, 2), left(name, 1), right(name, 2), lpad(name, 6, '*'), rpad(name, 5, '-') FROM customers;
SELECT email, position('@' IN email), split_part(email, '@', 2), replace(email, '@', ' at ') FROM customers;
SELECT balance, round(balance, 2), trunc(balance), ceil(balance), floor(balance), sign(balance), abs(balance) FROM customers;
SELECT exact, exact * 3, exact / 3, exact % 7, -exact, exact + 0.5 FROM readings;
SELECT id, owner, kind FROM devices WHERE owner IS NOT NULL AND kind <> 'watch';
SELECT id FROM devices WHERE seen > '2024-02-03' AND score < 5;
SELECT id FROM devices WHERE id > '80000000-0000-0000-0000-000000000000';
SELECT region, visitor FROM visits WHERE region LIKE '%u%';
SELECT region, visitor, pages FROM visits WHERE pages > visitor;
SELECT region || visitor AS code FROM visits WHERE ref = 'ref1';
SELECT at, id FROM events WHERE kind = 'err' OR weight = 4;
SELECT at, kind FROM events WHERE weight IS NULL;
SELECT class, name FROM stock WHERE price > 2 AND pieces IS NOT NULL;
SELECT * FROM stock WHERE (class, id) > ('b', 3);
SELECT * FROM stock WHERE (class, id) IN (('a', 1), ('c', 2), ('d', 9));
SELECT * FROM orders WHERE (status, qty) = ('new', 3) OR (status, qty) IS NULL;
SELECT * FROM nothing WHERE a > 3;
SELECT count(*), sum(a), max(c), min(k) FROM nothing;
SELECT * FROM orders WHERE false;
SELECT * FROM orders WHERE NULL;
SELECT * FROM orders WHERE true AND qty = 1;
SELECT * FROM orders WHERE 1 = 2 OR qty = 1;
SELECT id FROM orders WHERE (((qty = 1)));
SELECT id FROM orders WHERE NOT (qty = 1 OR qty = 2 AND paid);
SELECT id FROM orders o WHERE o.qty = 1 AND o.status = 'new' OR o.paid;
SELECT public.orders.id FROM public.orders WHERE public.orders.qty = 4;
SELECT "orders"."id" FROM "public"."orders" WHERE "orders"."qty" = 4;
SELECT o.tenant_id FROM orders AS o (t, i) WHERE o.i = 2;
SELECT t, i FROM orders AS o (t, i) WHERE i = 2;
SELECT FROM orders WHERE qty = 1;
SELECT ALL qty FROM orders;
SELECT /* a comment */ id -- and another
FROM orders /* ; */ WHERE qty = 1;

-- foreach e: qty + price | qty - tenant_id | price * price | qty::numeric / 4 | qty / 2 | qty % 3 | tenant_id % 4 | id::bigint * tenant_id | price::text | qty::text || status | length(note) | at::date - day | at::time | date_part('hour', at) | extract(epoch FROM at) | to_char(at, 'YYYY-MM-DD HH24:MI') | day::timestamp | paid::text | paid::integer | NOT paid | qty = price | qty > 2 | status > note | concat(status, '-', note) | concat_ws(',', status, note, qty) | md5(status) | status LIKE 'n%' | qty IS NULL | (qty IS NULL) = (price IS NULL) | format('%s:%s', id, qty) | repeat(note, 2) | strpos(note, 'x') | round(price / 3, 3) | to_char(price, 'FM990.00') | age(timestamp '2024-03-01', at) | at + interval '1 month'
SELECT tenant_id, id, ${e} AS e FROM orders;
