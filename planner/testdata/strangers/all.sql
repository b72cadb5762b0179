-- One shard: what its keys say is all that matters.
SELECT * FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]
UPDATE orders SET note = 'x' WHERE tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
SELECT o.id, i.name FROM orders o JOIN items i USING (tenant_id) WHERE o.tenant_id = 5;
--> one shard shard-0, key (5) [SELECT, read only, rows]

-- scatter
SELECT * FROM orders;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders
-->   on shard-0: SELECT * FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT * FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
SELECT * FROM orders WHERE qty > 1 AND note = 'a' ORDER BY id LIMIT 3;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE qty > 1 AND note = 'a' ORDER BY id LIMIT 3
-->   on shard-0: SELECT * FROM orders WHERE qty > 1 AND note = 'a' AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) ORDER BY id LIMIT 3
-->   on shard-1: SELECT * FROM orders WHERE qty > 1 AND note = 'a' AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) ORDER BY id LIMIT 3
-->   combine: merge by column 2, limit 3
SELECT * FROM orders WHERE qty > 1 OR note = 'a' FOR UPDATE;
--> several shards [SELECT, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM orders WHERE qty > 1 OR note = 'a' FOR UPDATE
-->   on shard-0: SELECT * FROM orders WHERE (qty > 1 OR note = 'a') AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) FOR UPDATE
-->   on shard-1: SELECT * FROM orders WHERE (qty > 1 OR note = 'a') AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) FOR UPDATE
SELECT note FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT note FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8)
-->   on shard-0: SELECT note FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8) AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT note FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8) AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
SELECT o.id, i.name FROM orders AS o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT o.id, i.name FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id
-->   on shard-0: SELECT o.id, i.name FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT o.id, i.name FROM orders o LEFT JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id WHERE NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
SELECT j.id FROM (orders JOIN items USING (tenant_id)) AS j (t, id);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT j.id FROM (orders JOIN items USING (tenant_id) ) j(t, id)
-->   on shard-0: SELECT j.id FROM ((SELECT * FROM orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)) orders JOIN items USING (tenant_id) ) j(t, id)
-->   on shard-1: SELECT j.id FROM ((SELECT * FROM orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)) orders JOIN items USING (tenant_id) ) j(t, id)
SELECT "Q"."K" FROM orders AS "Q" ("K", b) WHERE EXISTS (SELECT FROM items WHERE items.tenant_id = "Q"."K");
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT "Q"."K" FROM orders "Q"("K", b) WHERE EXISTS (SELECT FROM items WHERE items.tenant_id = "Q"."K")
-->   on shard-0: SELECT "Q"."K" FROM orders "Q"("K", b) WHERE EXISTS (SELECT FROM items WHERE items.tenant_id = "Q"."K") AND NOT (pg_catalog.hashint8extended(("Q"."K"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT "Q"."K" FROM orders "Q"("K", b) WHERE EXISTS (SELECT FROM items WHERE items.tenant_id = "Q"."K") AND NOT (pg_catalog.hashint8extended(("Q"."K"), '0'::bigint) < '-6148914691236517206'::bigint)
SELECT x.note FROM (SELECT tenant_id, note FROM orders WHERE qty = 1) AS x JOIN items ON items.tenant_id = x.tenant_id;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT x.note FROM (SELECT tenant_id, note FROM orders WHERE qty = 1) x JOIN items ON items.tenant_id = x.tenant_id
-->   on shard-0: SELECT x.note FROM (SELECT tenant_id, note FROM orders WHERE qty = 1 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)) x JOIN items ON items.tenant_id = x.tenant_id
-->   on shard-1: SELECT x.note FROM (SELECT tenant_id, note FROM orders WHERE qty = 1 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)) x JOIN items ON items.tenant_id = x.tenant_id
SELECT tenant_id FROM orders UNION ALL SELECT tenant_id FROM items WHERE n = 1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id FROM orders UNION ALL SELECT tenant_id FROM items WHERE n = 1
-->   on shard-0: SELECT tenant_id FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) UNION ALL SELECT tenant_id FROM items WHERE n = 1 AND NOT (pg_catalog.hashint8extended(("items"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT tenant_id FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) UNION ALL SELECT tenant_id FROM items WHERE n = 1 AND NOT (pg_catalog.hashint8extended(("items"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id ORDER BY 2;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT tenant_id, count(*) FROM orders GROUP BY tenant_id ORDER BY 2
-->   on shard-0: SELECT tenant_id, count(*) FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) GROUP BY tenant_id ORDER BY 2
-->   on shard-1: SELECT tenant_id, count(*) FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) GROUP BY tenant_id ORDER BY 2
-->   combine: merge by column 2
SELECT region, page FROM visits;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT region, page FROM visits
-->   on shard-0: SELECT region, page FROM visits WHERE NOT (("visits"."region" COLLATE pg_catalog."C" = 'eu'::pg_catalog.text AND "visits"."visitor" = '7'::bigint))
SELECT city FROM offices;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-1, shard-2
-->   shard text: SELECT city FROM offices
-->   on shard-2: SELECT city FROM offices WHERE NOT ("offices"."region" COLLATE pg_catalog."C" IN ('eu'::pg_catalog.text))
SELECT * FROM readings;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM readings
-->   on shard-0: SELECT * FROM readings WHERE NOT ("readings"."sensor" >= '12'::bigint AND "readings"."sensor" < '20'::bigint)
SELECT seq FROM readings WHERE sensor BETWEEN 11 AND 15;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-1
-->   shard text: SELECT seq FROM readings WHERE sensor BETWEEN 11 AND 15
SELECT seq FROM readings WHERE sensor > $1;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: decided by the parameters
-->   shard text: SELECT seq FROM readings WHERE sensor > $1
-->   on shard-0: SELECT seq FROM readings WHERE sensor > $1 AND NOT ("readings"."sensor" >= '12'::bigint AND "readings"."sensor" < '20'::bigint)
WITH w AS (SELECT tenant_id AS t, note FROM orders) SELECT * FROM w;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.tenant_id, t.note FROM public.orders t
-->   on shard-0: SELECT t.tenant_id, t.note FROM public.orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT t.tenant_id, t.note FROM public.orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shard text: WITH w AS (SELECT tenant_id AS t, note FROM cleave_rel_1 orders) SELECT * FROM w
-->   why: its rows cannot be combined as they come from the shards
SELECT * FROM big_orders;
--> several shards [SELECT, read only, rows]
-->   text: SELECT * FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note\n   FROM public.orders\n  WHERE (orders.qty > 10)) AS "big_orders"
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10) big_orders
-->   on shard-0: SELECT * FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)) big_orders
-->   on shard-1: SELECT * FROM (SELECT orders.tenant_id, orders.id, upper(orders.note) AS note FROM public.orders WHERE orders.qty > 10 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)) big_orders
SELECT id FROM orders TABLESAMPLE BERNOULLI (10);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT id FROM orders TABLESAMPLE bernoulli(10)
-->   on shard-0: SELECT id FROM orders TABLESAMPLE bernoulli(10) WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT id FROM orders TABLESAMPLE bernoulli(10) WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
SELECT * FROM docs;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM docs

-- gather
SELECT count(*), sum(qty) FROM orders WHERE note <> 'cleave_strangers_0()';
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT count(*) AS c1, sum(qty) AS c2 FROM orders WHERE note <> 'cleave_strangers_0()'
-->   on shard-0: SELECT count(*) AS c1, sum(qty) AS c2 FROM orders WHERE note <> 'cleave_strangers_0()' AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT count(*) AS c1, sum(qty) AS c2 FROM orders WHERE note <> 'cleave_strangers_0()' AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shard text: SELECT COALESCE(pg_catalog.sum(cleave_rel_1.c1)::bigint, 0) AS count, pg_catalog.sum(cleave_rel_1.c2)::bigint AS sum FROM cleave_rel_1
-->   why: its groups have rows of several shards
SELECT o.id FROM orders o JOIN people p ON p.nick = o.note WHERE o.qty > 2;
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT t.id, t.note, t.qty FROM public.orders t WHERE t.qty > 2
-->   on shard-0: SELECT t.id, t.note, t.qty FROM public.orders t WHERE t.qty > 2 AND NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT t.id, t.note, t.qty FROM public.orders t WHERE t.qty > 2 AND NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.nick FROM public.people t
-->   shard text: SELECT o.id FROM cleave_rel_1 o JOIN cleave_rel_2 p ON p.nick = o.note WHERE o.qty > 2
-->   why: its rows cannot be combined as they come from the shards
SELECT note FROM orders WHERE qty > (SELECT avg(n) FROM items);
--> several shards [SELECT, read only, rows]
-->   operation: gather
-->   relation cleave_rel_1: shard-0, shard-1, shard-2: SELECT pg_catalog.sum(n) AS c1, pg_catalog.count(n) AS c2 FROM items
-->   on shard-0: SELECT pg_catalog.sum(n) AS c1, pg_catalog.count(n) AS c2 FROM items WHERE NOT (pg_catalog.hashint8extended(("items"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT pg_catalog.sum(n) AS c1, pg_catalog.count(n) AS c2 FROM items WHERE NOT (pg_catalog.hashint8extended(("items"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   relation cleave_rel_2: shard-0, shard-1, shard-2: SELECT t.note, t.qty FROM public.orders t
-->   on shard-0: SELECT t.note, t.qty FROM public.orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: SELECT t.note, t.qty FROM public.orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shard text: SELECT note FROM cleave_rel_2 orders WHERE qty > (SELECT pg_catalog.sum(cleave_rel_1.c1) / pg_catalog.sum(cleave_rel_1.c2) AS avg FROM cleave_rel_1)
-->   why: its rows cannot be combined as they come from the shards
SELECT DISTINCT note FROM orders ORDER BY note LIMIT 2;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT DISTINCT note FROM orders ORDER BY note LIMIT 2
-->   on shard-0: SELECT DISTINCT note FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) ORDER BY note LIMIT 2
-->   on shard-1: SELECT DISTINCT note FROM orders WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) ORDER BY note LIMIT 2
-->   combine: merge by column 1, unique by 1, limit 2

-- writes
UPDATE orders SET note = 'x';
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET note = 'x'
-->   on shard-0: UPDATE orders SET note = 'x' WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: UPDATE orders SET note = 'x' WHERE NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders AS o SET qty = i.n FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = 1 AND (o.qty = 1 OR o.note = 'y');
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders o SET qty = i.n FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = 1 AND (o.qty = 1 OR o.note = 'y')
-->   on shard-0: UPDATE orders o SET qty = i.n FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = 1 AND (o.qty = 1 OR o.note = 'y') AND NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: UPDATE orders o SET qty = i.n FROM items i WHERE i.tenant_id = o.tenant_id AND i.id = 1 AND (o.qty = 1 OR o.note = 'y') AND NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM items WHERE n = 1 RETURNING id;
--> several shards [DELETE, rows]
-->   operation: modify
-->   shard text: DELETE FROM items WHERE n = 1 RETURNING id
-->   on shard-0: DELETE FROM items WHERE n = 1 AND NOT (pg_catalog.hashint8extended(("items"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) RETURNING id
-->   on shard-1: DELETE FROM items WHERE n = 1 AND NOT (pg_catalog.hashint8extended(("items"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) RETURNING id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders WHERE note IN (SELECT nick FROM people);
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT nick FROM people
-->   shard text: DELETE FROM orders WHERE note IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   on shard-0: DELETE FROM orders WHERE note IN (SELECT * FROM cleave_rel_0 cleave_rel_0_) AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: DELETE FROM orders WHERE note IN (SELECT * FROM cleave_rel_0 cleave_rel_0_) AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET tenant_id = tenant_id + 1 WHERE qty = 3;
--> several shards [UPDATE]
-->   operation: modify
-->   lock: SELECT orders.ctid::pg_catalog.text, (tenant_id + 1)::bigint, orders.tenant_id::bigint FROM orders WHERE qty = 3 FOR UPDATE OF orders
-->   stay: UPDATE orders SET tenant_id = tenant_id + 1 WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND qty = 3
-->   take: DELETE FROM orders WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND qty = 3 RETURNING tenant_id + 1, orders.id, orders.note, orders.qty, orders.price, (tenant_id + 1)::bigint
-->   put: INSERT INTO orders (tenant_id, id, note, qty, price) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_
-->   on shard-0: SELECT orders.ctid::pg_catalog.text, (tenant_id + 1)::bigint, orders.tenant_id::bigint FROM orders WHERE qty = 3 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) FOR UPDATE OF orders
-->   on shard-1: SELECT orders.ctid::pg_catalog.text, (tenant_id + 1)::bigint, orders.tenant_id::bigint FROM orders WHERE qty = 3 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) FOR UPDATE OF orders
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
INSERT INTO items (tenant_id, id, name) SELECT tenant_id, id, note FROM orders WHERE qty = 1;
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO items (tenant_id, id, name) SELECT tenant_id, id, note FROM orders WHERE qty = 1
-->   on shard-0: INSERT INTO items (tenant_id, id, name) SELECT tenant_id, id, note FROM orders WHERE qty = 1 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)
-->   on shard-1: INSERT INTO items (tenant_id, id, name) SELECT tenant_id, id, note FROM orders WHERE qty = 1 AND NOT (pg_catalog.hashint8extended(("orders"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard inserts what it selects
INSERT INTO people SELECT note, note FROM orders;
--> several shards [INSERT]
-->   operation: insert
-->   source: several shards (scatter): SELECT note, note FROM orders
-->   shard text: INSERT INTO people (name, nick) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
MERGE INTO orders o USING (VALUES (3, 1)) v(t, i) ON o.tenant_id % 7 = v.t AND o.id = v.i WHEN MATCHED AND o.qty > 2 THEN DELETE WHEN MATCHED THEN UPDATE SET qty = v.t;
--> several shards [MERGE]
-->   operation: modify
-->   read 0: any shard: SELECT * FROM (VALUES (3, 1)) v(t, i)
-->   shard text: MERGE INTO orders o USING <relation 0> v ON (o.tenant_id % 7) = v.t AND o.id = v.i WHEN MATCHED AND o.qty > 2 THEN DELETE WHEN MATCHED THEN UPDATE SET qty = v.t
-->   on shard-0: MERGE INTO orders o USING cleave_rel_0 v ON (o.tenant_id % 7) = v.t AND o.id = v.i WHEN MATCHED AND o.qty > 2 AND NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) THEN DELETE WHEN MATCHED AND NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) THEN UPDATE SET qty = v.t
-->   on shard-1: MERGE INTO orders o USING cleave_rel_0 v ON (o.tenant_id % 7) = v.t AND o.id = v.i WHEN MATCHED AND o.qty > 2 AND NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) THEN DELETE WHEN MATCHED AND NOT (pg_catalog.hashint8extended(("o"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) THEN UPDATE SET qty = v.t
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
MERGE INTO items AS t USING orders AS s ON t.tenant_id = s.tenant_id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (s.tenant_id, s.id);
--> several shards [MERGE]
-->   operation: modify
-->   shard text: MERGE INTO items t USING orders s ON t.tenant_id = s.tenant_id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (s.tenant_id, s.id)
-->   on shard-0: MERGE INTO items t USING (SELECT * FROM orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)) s ON t.tenant_id = s.tenant_id WHEN MATCHED AND NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint) THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (s.tenant_id, s.id)
-->   on shard-1: MERGE INTO items t USING (SELECT * FROM orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)) s ON t.tenant_id = s.tenant_id WHEN MATCHED AND NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint) THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (s.tenant_id, s.id)
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE notes SET body = 'x' WHERE id IN (SELECT id FROM orders);
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT id FROM orders
-->   shard text: UPDATE notes SET body = 'x' WHERE id IN (SELECT * FROM <relation 0> cleave_rel_0_)
-->   shards: shard-0
-->   why: rows of other shards are read first
COPY orders TO STDOUT (FORMAT csv, HEADER);
--> several shards [COPY, read only, copy]
-->   operation: copy out
-->   shard text: COPY orders TO STDOUT WITH (FORMAT CSV, HEADER)
-->   on shard-0: COPY (SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) >= '6148914691236517205'::bigint)) TO STDOUT WITH (FORMAT CSV, HEADER)
-->   on shard-1: COPY (SELECT t.tenant_id, t.id, t.note, t.qty, t.price FROM orders t WHERE NOT (pg_catalog.hashint8extended(("t"."tenant_id"), '0'::bigint) < '-6148914691236517206'::bigint)) TO STDOUT WITH (FORMAT CSV, HEADER)
-->   shards: shard-0, shard-1, shard-2
-->   why: the shards' rows, one after the other
COPY readings (seq, sensor) TO STDOUT;
--> several shards [COPY, read only, copy]
-->   operation: copy out
-->   shard text: COPY readings(seq, sensor) TO STDOUT
-->   on shard-0: COPY (SELECT t.seq, t.sensor FROM readings t WHERE NOT ("t"."sensor" >= '12'::bigint AND "t"."sensor" < '20'::bigint)) TO STDOUT
-->   shards: shard-0, shard-1, shard-2
-->   why: the shards' rows, one after the other
COPY readings TO STDOUT;
--> several shards [COPY, read only, copy]
-->   operation: copy out
-->   shard text: COPY readings TO STDOUT
-->   on shard-0: COPY (SELECT t.sensor, t.seq, t.value FROM readings t WHERE NOT ("t"."sensor" >= '12'::bigint AND "t"."sensor" < '20'::bigint)) TO STDOUT
-->   shards: shard-0, shard-1, shard-2
-->   why: the shards' rows, one after the other
COPY (SELECT note FROM orders) TO STDOUT;
--> several shards [COPY, read only, copy]
-->   operation: copy out
-->   source: several shards (scatter): SELECT note FROM orders
-->   shards: shard-0, shard-1, shard-2
-->   why: the rows of the query are written as COPY does
TRUNCATE orders;
--> schema change truncate, all shards, truncates [{public orders}] [TRUNCATE TABLE]
EXPLAIN SELECT * FROM offices;
--> several shards [EXPLAIN, read only, rows]
-->   operation: scatter
-->   shards: shard-1, shard-2
-->   shard text: SELECT * FROM offices
-->   on shard-2: SELECT * FROM offices WHERE NOT ("offices"."region" COLLATE pg_catalog."C" IN ('eu'::pg_catalog.text))
DECLARE c CURSOR FOR SELECT city FROM offices;
--> several shards [DECLARE CURSOR, read only]
-->   operation: scatter
-->   shards: shard-1, shard-2
-->   shard text: SELECT city FROM offices
-->   on shard-2: SELECT city FROM offices WHERE NOT ("offices"."region" COLLATE pg_catalog."C" IN ('eu'::pg_catalog.text))
