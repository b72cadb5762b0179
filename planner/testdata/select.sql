-- One table: literals and parameters that fix the shard key.
SELECT * FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE 5 = tenant_id AND id > 3;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM public.orders WHERE orders.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM public.orders WHERE public.orders.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders o WHERE o.tenant_id = $1 AND o.id = $2;
--> one shard, key ($1) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = '5';
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = -5;
--> one shard shard-0, key (-5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = - 5;
--> one shard shard-0, key (-5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = +5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5.0;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5.5;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 1e2;
--> one shard shard-0, key (100) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 9223372036854775807;
--> one shard shard-1, key (9223372036854775807) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 9223372036854775808;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = -9223372036854775808;
--> one shard shard-0, key (-9223372036854775808) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = '9223372036854775808';
--> refused 22003: value "9223372036854775808" is out of range for type bigint at 40
-->   hint: no row can have this key
SELECT * FROM orders WHERE tenant_id = 'abc';
--> refused 22P02: invalid input syntax for type bigint: "abc" at 40
SELECT * FROM orders WHERE tenant_id = 5::bigint;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5::int;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = '5'::bigint;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = bigint '5';
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = CAST('5' AS int8);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = -5::bigint;
--> one shard shard-0, key (-5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5::numeric;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = 5::numeric
SELECT * FROM orders WHERE tenant_id = 5::float8;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = 5::float8
SELECT * FROM orders WHERE tenant_id = '5'::text;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = '5'::text
SELECT * FROM orders WHERE tenant_id = $1::bigint;
--> one shard, key ($1::bigint) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = $1::int;
--> one shard, key ($1::integer) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = $1::text;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = $1::text
SELECT * FROM orders WHERE tenant_id = $1::numeric;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = $1::numeric
SELECT * FROM orders WHERE tenant_id::bigint = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id::int = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id::int = 5
SELECT * FROM orders WHERE tenant_id::text = '5';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id::text = '5'
SELECT * FROM orders WHERE tenant_id = NULL;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT count(*) FROM orders WHERE tenant_id = NULL;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 1 AND tenant_id = 2;
--> one shard shard-0, key (1) [SELECT, read only, rows]
SELECT count(*), max(id) FROM orders WHERE tenant_id = 1 AND tenant_id = 2;
--> one shard shard-0, key (1) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 + 1;
--> one shard shard-1, key (6) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = abs(-5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = abs(-5)
SELECT * FROM orders WHERE tenant_id + 0 = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE (tenant_id + 0) = 5
SELECT * FROM orders WHERE tenant_id IS NOT DISTINCT FROM 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IS NOT DISTINCT FROM $1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IS NOT DISTINCT FROM $1
SELECT * FROM orders WHERE tenant_id IS DISTINCT FROM 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id IS DISTINCT FROM 5
SELECT * FROM orders WHERE (tenant_id = 5) IS TRUE;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 ORDER BY id LIMIT 3 OFFSET 1;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT DISTINCT note FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT note, count(*), sum(qty) OVER () FROM orders WHERE tenant_id = 5 GROUP BY note, qty HAVING count(*) > 1;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT ctid, xmin, tableoid::regclass FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT tableoid = 'orders'::regclass, 'note'::regtype, pg_typeof(note), $1::regclass FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT tableoid FROM orders WHERE tenant_id = 5;
--> refused 0A000: tableoid in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT note FROM orders WHERE tenant_id = 5 AND tableoid = 16400;
--> refused 0A000: tableoid in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT tableoid::text FROM orders WHERE tenant_id = 5;
--> refused 0A000: tableoid in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT 'orders'::regclass::oid FROM orders WHERE tenant_id = 5;
--> refused 0A000: an object's OID in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT pg_typeof(note)::int, note FROM orders WHERE tenant_id = 5;
--> refused 0A000: an object's OID in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT to_regclass('orders')::int8 FROM orders;
--> refused 0A000: an object's OID in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT '16400'::regclass FROM orders WHERE tenant_id = 5;
--> refused 0A000: a number as regclass in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT id FROM orders WHERE tenant_id = 5 AND tableoid::regclass = 16400;
--> refused 0A000: an object compared with a number in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT id FROM orders WHERE tenant_id = 5 AND pg_typeof(note) = $1;
--> refused 0A000: an object compared with a number in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT id FROM orders WHERE tenant_id = 5 AND pg_typeof(note) IN ('text'::regtype, pg_typeof(qty)) AND 'pg_class'::regclass <> to_regclass(note);
--> one shard shard-0, key (5) [SELECT, read only, rows]
UPDATE orders SET qty = tableoid::int8 WHERE tenant_id = 5;
--> refused 0A000: tableoid in a statement on the table orders: the OIDs of tables and types differ between shards
-->   hint: Name the object: tableoid::regclass, 'orders'::regclass; or take its OID in a statement of its own.
SELECT 'orders'::regclass::oid, 16400::regtype;
--> default shard [SELECT, read only, rows]
SELECT * FROM orders TABLESAMPLE BERNOULLI (50) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM ONLY orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 FOR UPDATE;
--> one shard shard-0, key (5) [SELECT, rows]
SELECT * FROM orders WHERE tenant_id = 5 FOR KEY SHARE SKIP LOCKED;
--> one shard shard-0, key (5) [SELECT, rows]
SELECT o.* FROM orders AS o(t, i) WHERE t = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT o.* FROM orders AS o(t, i) WHERE tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.* FROM orders o(t, i) WHERE tenant_id = 5
SELECT o.* FROM orders AS o(id, tenant_id) WHERE o.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.* FROM orders o(id, tenant_id) WHERE o.tenant_id = 5
SELECT * FROM orders o WHERE orders.tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders o WHERE orders.tenant_id = 5
SELECT nosuch FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE "Tenant_Id" = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE "Tenant_Id" = 5
SELECT * FROM orders WHERE TENANT_ID = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM "orders" WHERE "tenant_id" = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
TABLE orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
SELECT count(*) FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1 FROM orders
-->   shard text: SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT * FROM orders WHERE id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE id = 5
SELECT * FROM orders WHERE tenant_id > 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id > 5
SELECT * FROM orders WHERE tenant_id BETWEEN 5 AND 6;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id BETWEEN 5 AND 6
SELECT * FROM orders WHERE tenant_id BETWEEN 5 AND 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id BETWEEN 5 AND 5
SELECT * FROM orders WHERE tenant_id = 5 OR id = 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = 5 OR id = 3
SELECT * FROM orders WHERE NOT tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE NOT tenant_id = 5
SELECT * FROM orders WHERE tenant_id <> 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id <> 5
SELECT * FROM orders WHERE tenant_id NOT IN (5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id NOT IN (5)
SELECT * FROM orders WHERE tenant_id = ALL (ARRAY[5]);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id = ALL(ARRAY[5])
SELECT * FROM orders WHERE CASE WHEN true THEN tenant_id = 5 END;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE CASE WHEN true THEN tenant_id = 5 END
SELECT * FROM orders WHERE COALESCE(tenant_id = 5, false);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE COALESCE(tenant_id = 5, false)
SELECT * FROM orders WHERE tenant_id LIKE '5';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id LIKE '5'
SELECT * FROM orders ORDER BY id LIMIT 10;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders ORDER BY id LIMIT 10
-->   combine: merge by column 2, limit 10
SELECT DISTINCT note FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT note FROM orders ORDER BY 1
-->   combine: merge by column 1, unique by 1
SELECT * FROM orders WHERE true;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE true
SELECT * FROM orders WHERE false;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE false
SELECT * FROM orders HAVING count(*) > 1;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: SELECT * FROM cleave_rel_1 orders HAVING count(*) > 1
-->   why: its rows cannot be combined as they come from the shards
-- OPERATOR() of another schema may mean anything.
SELECT * FROM orders WHERE tenant_id OPERATOR(pg_catalog.=) 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id OPERATOR(public.=) 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE tenant_id OPERATOR(public.=) 5
