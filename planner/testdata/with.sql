-- WITH.
WITH s AS (SELECT * FROM orders WHERE tenant_id = 5) SELECT * FROM s;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH s AS (SELECT * FROM orders) SELECT * FROM s WHERE tenant_id = 5;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: WITH s AS (SELECT * FROM cleave_rel_1 orders) SELECT * FROM s WHERE tenant_id = 5
-->   why: its rows cannot be combined as they come from the shards
WITH s AS (SELECT * FROM orders WHERE tenant_id = 5) SELECT * FROM s JOIN items i ON i.tenant_id = s.tenant_id;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH s AS (SELECT * FROM orders WHERE tenant_id = 5) SELECT * FROM s LEFT JOIN items i USING (tenant_id);
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH s AS (SELECT * FROM orders WHERE tenant_id = 5) SELECT * FROM items i LEFT JOIN s USING (tenant_id);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.order_id, t.id, t.name, t.n FROM public.items t
-->   shard text: WITH s AS (SELECT * FROM cleave_rel_1 orders WHERE tenant_id = 5) SELECT * FROM cleave_rel_2 i LEFT JOIN s USING (tenant_id)
-->   why: its rows cannot be combined as they come from the shards
WITH s(t) AS (SELECT tenant_id FROM orders WHERE tenant_id = 5) SELECT * FROM s JOIN items i ON i.tenant_id = s.t;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH orders AS (SELECT 1 AS tenant_id) SELECT * FROM orders;
--> any shard [SELECT, read only, rows]
WITH orders AS (SELECT 1 AS tenant_id) SELECT * FROM public.orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH s AS (SELECT count(*) AS n FROM orders WHERE tenant_id = 5) SELECT * FROM s;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH p AS (SELECT 5 AS t) SELECT * FROM orders o JOIN p ON p.t = o.tenant_id;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH p AS (SELECT $1::bigint AS t) SELECT * FROM orders o, p WHERE p.t = o.tenant_id;
--> one shard, key ($1::bigint) [SELECT, read only, rows]
WITH p AS (SELECT $1 AS t) SELECT * FROM orders o, p WHERE p.t = o.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: WITH p AS (SELECT $1 AS t) SELECT * FROM orders o, p WHERE p.t = o.tenant_id
WITH p(t) AS (VALUES (5), (5)) SELECT * FROM orders WHERE tenant_id IN (SELECT t FROM p);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: WITH p(t) AS (VALUES (5), (5)) SELECT * FROM orders WHERE tenant_id IN (SELECT t FROM p)
WITH a AS (SELECT 1), b AS (SELECT * FROM a) SELECT * FROM b;
--> any shard [SELECT, read only, rows]
-- Recursion, by induction.
WITH RECURSIVE r AS (SELECT * FROM orders WHERE tenant_id = 5 AND id = 1 UNION ALL SELECT o.* FROM orders o JOIN r ON o.tenant_id = r.tenant_id AND o.id = r.id + 1) SELECT * FROM r;
--> one shard shard-0, key (5) [SELECT, read only, rows]
WITH RECURSIVE r AS (SELECT * FROM orders WHERE tenant_id = 5 AND id = 1 UNION SELECT o.* FROM orders o JOIN r ON o.id = r.id + 1) SELECT * FROM r;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t WHERE t.tenant_id = 5 AND t.id = 1
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM public.orders t
-->   shard text: WITH RECURSIVE r AS (SELECT * FROM cleave_rel_1 orders WHERE tenant_id = 5 AND id = 1 UNION SELECT o.* FROM cleave_rel_2 o JOIN r ON o.id = (r.id + 1)) SELECT * FROM r
-->   why: its rows cannot be combined as they come from the shards
WITH RECURSIVE r AS (SELECT tenant_id, id FROM orders WHERE tenant_id = 5 AND id = 1 UNION SELECT o.id, o.tenant_id FROM orders o JOIN r ON o.tenant_id = r.tenant_id) SELECT * FROM r;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0: SELECT t.tenant_id, t.id FROM public.orders t WHERE t.tenant_id = 5 AND t.id = 1
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.id FROM public.orders t
-->   shard text: WITH RECURSIVE r AS (SELECT tenant_id, id FROM cleave_rel_1 orders WHERE tenant_id = 5 AND id = 1 UNION SELECT o.id, o.tenant_id FROM cleave_rel_2 o JOIN r ON o.tenant_id = r.tenant_id) SELECT * FROM r
-->   why: its rows cannot be combined as they come from the shards
WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT * FROM r;
--> any shard [SELECT, read only, rows]
WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT * FROM orders o JOIN r ON r.n = o.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 10) SELECT * FROM orders o JOIN r ON r.n = o.tenant_id
-- Writes in WITH.
WITH d AS (DELETE FROM orders WHERE tenant_id = 5 RETURNING *) SELECT * FROM d;
--> one shard shard-0, key (5) [SELECT, rows]
WITH d AS (DELETE FROM orders WHERE tenant_id = 5 RETURNING *) INSERT INTO items (tenant_id, id) SELECT 5, id FROM d;
--> one shard shard-0, key (5), (5) [INSERT]
WITH d AS (DELETE FROM orders RETURNING *) SELECT count(*) FROM d;
--> several shards [SELECT, rows]
-->   operation: modify
-->   read 0: several shards (modify): DELETE FROM orders RETURNING *
-->   shard text: WITH d AS (SELECT * FROM <relation 0> cleave_rel_0_) SELECT count(*) FROM d
-->   shards: any shard
-->   why: WITH queries change rows first
WITH d AS (DELETE FROM orders WHERE tenant_id = 5 RETURNING *) SELECT * FROM items i JOIN d ON d.id = i.order_id WHERE i.tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, rows]
WITH u AS (UPDATE orders SET note = 'x' WHERE tenant_id = 5 RETURNING id) SELECT * FROM u, items WHERE items.tenant_id = 6;
--> several shards [SELECT, rows]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT * FROM items
-->   read 1: one shard: UPDATE orders SET note = 'x' WHERE tenant_id = 5 RETURNING id
-->   shard text: WITH u AS (SELECT * FROM <relation 1> cleave_rel_1_) SELECT * FROM u, <relation 0> items WHERE items.tenant_id = 6
-->   shards: any shard
-->   why: WITH queries change rows first
WITH RECURSIVE a AS (SELECT * FROM orders WHERE tenant_id = 5), orders AS (SELECT 1 AS tenant_id) SELECT * FROM a;
--> any shard [SELECT, read only, rows]
WITH i AS (INSERT INTO orders (tenant_id, id) VALUES ($1, 1) RETURNING *) SELECT * FROM i, items WHERE items.tenant_id = $1;
--> one shard, key ($1), ($1) [SELECT, rows]
