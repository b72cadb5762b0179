-- Which shards a statement needs: keys behind AND, OR, IN, ANY, ranges, rows, joins. Wrong routing is rows that are missing.

-- foreach c: tenant_id = 3 | tenant_id IN (3, 4, 5) | tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 99) | tenant_id = 3 OR tenant_id = 7 | tenant_id = 3 OR qty = 1 | tenant_id = 3 AND (qty = 1 OR id = 2) | (tenant_id = 3 AND qty > 0) OR (tenant_id = 5 AND qty < 3) | tenant_id = 3 OR (tenant_id = 5 AND qty = 1) OR status = 'new' | tenant_id = ANY (ARRAY[2, 4, 6]) | tenant_id = ANY ('{2,4,6}') | tenant_id = ALL (ARRAY[2, 2]) | tenant_id <> 3 | tenant_id NOT IN (3, 4) | tenant_id > 6 | tenant_id BETWEEN 3 AND 6 | NOT tenant_id = 3 | NOT (tenant_id <> 3) | tenant_id IS NULL | tenant_id IS NOT NULL | tenant_id = NULL | tenant_id IN (NULL, 3) | tenant_id IN (3, 3, 3) | tenant_id = 1 + 2 | tenant_id = length('abc') | tenant_id + 1 = 4 | tenant_id = id | tenant_id = id + 1 | tenant_id = 3 AND tenant_id = 4 | tenant_id = 3 AND tenant_id IN (3, 4) | tenant_id IN (2, 3) AND tenant_id IN (3, 4) | tenant_id = 3.0 | tenant_id = 3.5 | tenant_id = '3' | tenant_id = 3::smallint | tenant_id::text = '3' | tenant_id = 99999999999 | tenant_id = -1 | (tenant_id, id) = (3, 2) | (tenant_id, id) IN ((3, 1), (4, 2)) | row(tenant_id, id) = row(3, 2) | (tenant_id, id) > (10, 2) | tenant_id IS NOT DISTINCT FROM 3 | tenant_id IS DISTINCT FROM 3 | (tenant_id = 3) IS TRUE | (tenant_id = 3) IS NOT FALSE | tenant_id = (CASE WHEN true THEN 3 END) | tenant_id = coalesce(NULL, 4) | tenant_id = greatest(3, 5) | tenant_id = (SELECT 3) | tenant_id IN (SELECT 3 UNION SELECT 4) | tenant_id = ANY (SELECT generate_series(2, 4)) | 3 = tenant_id | 3 IN (tenant_id, id) | tenant_id = 3 IS NULL | CASE WHEN tenant_id = 3 THEN true ELSE qty = 2 END | tenant_id = 3 AND false | tenant_id = 3 OR true | (tenant_id = 3 OR tenant_id = 4) AND (tenant_id = 4 OR tenant_id = 5) | tenant_id IN (1, 2) OR tenant_id IN (11, 12)
SELECT tenant_id, id, qty FROM orders WHERE ${c};

-- foreach c: sensor = 5 | sensor < 4 | sensor <= 4 | sensor > 14 | sensor >= 20 | sensor BETWEEN 4 AND 8 | sensor BETWEEN 8 AND 4 | sensor > 3 AND sensor < 10 | sensor > 3 AND sensor < 10 AND value > 1 | sensor < 2 OR sensor > 22 | sensor NOT BETWEEN 3 AND 21 | sensor >= 9 AND sensor < 9 | sensor > 3.5 | sensor < 4.0 | sensor >= '9' | NOT sensor < 10 | sensor IN (1, 5, 22) | sensor = ANY (ARRAY[1, 22]) | sensor > NULL | sensor < ALL (ARRAY[3, 9]) | (sensor, seq) >= (9, 2) | (sensor, seq) < (4, 2) | sensor > 20 OR value = 5 | sensor + 0 > 20 | 4 > sensor | sensor BETWEEN SYMMETRIC 8 AND 4 | sensor IS NOT NULL AND sensor > 19 | sensor > 4 AND sensor > 19 | sensor = 4 OR sensor BETWEEN 19 AND 21 | sensor < 5000000000 | sensor > -5000000000
SELECT sensor, seq, value FROM readings WHERE ${c};

-- foreach c: at = '2024-02-01 23:00:00' | at < '2024-02-01' | at >= '2024-03-01' AND at < '2024-04-01' | at BETWEEN '2024-01-15' AND '2024-02-15' | at > '2024-04-15 12:00' | at >= date '2024-04-01' | at < timestamp '2024-01-12' | at::date = '2024-02-11' | date_trunc('month', at) = '2024-03-01' | at > 'infinity' | at < 'infinity' | at > '-infinity' AND at < '2024-02-01 00:00:00.000001' | extract(year FROM at) = 2024 | at >= '2024-02-01' OR kind = 'in' | at + interval '1 day' > '2024-05-01'
SELECT at, id, kind FROM events WHERE ${c};

-- foreach c: class = 'a' | class IN ('a', 'c') | class IN ('a', 'b') | class = 'zzz' | class <> 'a' | class > 'b' | class BETWEEN 'b' AND 'c' | class = 'a' OR id = 3 | upper(class) = 'B' | class LIKE 'a%' | class = ANY (ARRAY['b', 'd']) | (class, id) = ('d', 2) | class IS NULL | class || 'x' = 'ax' | class IN ('a', 'zzz') | class COLLATE "C" = 'a'
SELECT class, id, pieces FROM stock WHERE ${c};

-- foreach c: region = 'eu' | region = 'eu' AND visitor = 3 | visitor = 3 | region = 'eu' AND visitor IN (1, 3) | region IN ('eu', 'us') AND visitor = 2 | (region, visitor) = ('us', 3) | (region, visitor) IN (('us', 3), ('eu', 1), ('', 2)) | region = '' AND visitor = 1 | region = 'Eu' AND visitor = 1 | region = 'eu' AND visitor = 1 OR region = 'us' AND visitor = 2 | (visitor, region) = (3, 'us') | region = 'eu' AND visitor BETWEEN 1 AND 3 | (region, visitor) > ('eu', 4) | region = ref | lower(region) = 'eu'
SELECT region, visitor, pages FROM visits WHERE ${c};

-- foreach c: email = 'ada@y.net' | email = 'ADA@y.net' | email IN ('ada@y.net', 'bob@x.org', 'nobody') | email LIKE 'a%' | email >= 't' | email = lower('ADA@Y.NET') | email = 'ada' || '@y.net' | email = 'öde@y.net' | email = ANY ('{ada@y.net,cy@y.net}'::text[]) | email = 'ada@y.net' OR name = 'bob' | email = name | email = 'bob@x.org'::varchar
SELECT email, name FROM customers WHERE ${c};

-- foreach c: id = md5('device3')::uuid | id = 'd1b5c8a4-0000-0000-0000-000000000000' | id IN (md5('device1')::uuid, md5('device2')::uuid) | id < '80000000-0000-0000-0000-000000000000' | id::text LIKE 'a%' | id = 'D1B5C8A4-0000-0000-0000-000000000000' OR kind = 'watch' | id IS NOT NULL
SELECT id, kind FROM devices WHERE ${c};

-- foreach o: AND o.tenant_id = 3 | AND i.tenant_id = 3 | AND o.tenant_id IN (3, 4) | AND i.tenant_id > 6 | AND (o.tenant_id = 2 OR i.tenant_id = 3) | AND o.tenant_id = i.id | AND i.n = 1 |
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT o.tenant_id, o.id, i.id, i.sku FROM orders o ${j} items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id ${o};
-- foreach o: o.tenant_id = 3 | i.tenant_id = 3 | o.tenant_id IN (3, 4) | i.tenant_id > 6 | o.tenant_id = 2 OR i.tenant_id = 3 | i.tenant_id IS NULL | o.tenant_id IS NULL OR o.tenant_id = 4
-- foreach j: JOIN | LEFT JOIN | RIGHT JOIN | FULL JOIN
SELECT o.tenant_id, o.id, i.id, i.sku FROM orders o ${j} items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHERE ${o};

-- params: 3
-- params: 12
-- params: \N
-- params: 77
SELECT tenant_id, id, qty FROM orders WHERE tenant_id = $1;
-- params: 3 | 5
-- params: 3 | 3
-- params: \N | 3
SELECT tenant_id, id FROM orders WHERE tenant_id IN ($1, $2);
-- params: {1,2,3}
-- params: {}
-- params: {4,NULL,4}
-- params: \N
SELECT tenant_id, id FROM orders WHERE tenant_id = ANY ($1);
-- params: 4 | 9
-- params: 9 | 4
-- params: \N | 4
-- params: 19 | 2147483647
SELECT sensor, seq FROM readings WHERE sensor BETWEEN $1 AND $2;
-- params: 4
-- params: 25
-- params: -1
SELECT sensor, seq FROM readings WHERE sensor >= $1 AND sensor < $1 + 6;
-- params: 3 | 2
-- params: 5 | 1
SELECT tenant_id, id FROM orders WHERE tenant_id = $1 OR id = $2;
-- params: eu | 3
-- params: us | 1
-- params: \N | 1
SELECT * FROM visits WHERE (region, visitor) = ($1, $2);
-- params: 2024-02-01 00:00:00
-- params: 2024-03-01 00:00:00
SELECT at, id FROM events WHERE at < $1;
-- params: ada@y.net
-- params: nobody
SELECT name FROM customers WHERE email = $1;
-- params: 3 | new
SELECT id FROM orders WHERE tenant_id = $1::bigint AND status = $2;
-- params: 3
SELECT id FROM orders WHERE tenant_id = $1 + 1;
-- params: 3
SELECT id FROM orders WHERE tenant_id = $1::text::bigint;
-- params: a
-- params: q
SELECT class, id FROM stock WHERE class = $1;
