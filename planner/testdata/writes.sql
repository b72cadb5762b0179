-- INSERT.
INSERT INTO orders VALUES (5, 1, 'x');
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (id, tenant_id) VALUES (1, 5);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (id, tenant_id) VALUES ($1, $2) RETURNING id;
--> one shard, key ($2) [INSERT, rows]
INSERT INTO orders (tenant_id, id) VALUES (5, 1), (5, 2), (5, 3);
--> one shard shard-0, key (5), (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5);
--> several shards [INSERT]
-->   operation: insert
-->   rows: 5
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (1, 1)
-->   first key: (1)
-->   why: the rows have different shard keys
INSERT INTO orders (id) VALUES (1);
--> refused 0A000: INSERT into orders gives no value for its shard key column tenant_id
-->   hint: Name the column tenant_id in the INSERT and give its value.
INSERT INTO orders DEFAULT VALUES;
--> refused 0A000: INSERT ... DEFAULT VALUES gives no value for the shard key of orders
-->   hint: Name the shard key column tenant_id and its value.
INSERT INTO orders (tenant_id, id) VALUES (DEFAULT, 1);
--> refused 0A000: the shard key column tenant_id of table orders gets its default on a shard, so its shard is not known before it runs
-->   hint: Give the value, or let the router make it: ALTER TABLE ... ALTER COLUMN ... SET DEFAULT cleave.next_id().
INSERT INTO orders (tenant_id, id) VALUES (NULL, 1);
--> refused 23502: null value in column "tenant_id" of relation "orders" violates not-null constraint
INSERT INTO orders (tenant_id, id) VALUES (2 + 3, 1);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES ((SELECT 5), 1);
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: any shard: SELECT (SELECT 5)::bigint
-->   rows: 1
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (<computed 1>::bigint, 1)
-->   first key: (<computed 1>)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES (5.0, 1);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5.4, 1);
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: any shard: SELECT (5.4)::bigint
-->   rows: 1
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (<computed 1>::bigint, 1)
-->   first key: (<computed 1>)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES ('5', 1);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES ('x', 1);
--> refused 22P02: invalid input syntax for type bigint: "x" at 44
INSERT INTO orders (tenant_id, id) VALUES (99999999999999999999, 1);
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: any shard: SELECT (99999999999999999999)::bigint
-->   rows: 1
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (<computed 1>::bigint, 1)
-->   first key: (<computed 1>)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES (5, (SELECT max(id) FROM items WHERE tenant_id = 5));
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, (SELECT max(id) FROM items));
--> several shards [INSERT]
-->   operation: insert
-->   computed 1: several shards (gather): SELECT (SELECT max(id) FROM items)
-->   rows: 1
-->   shard text: INSERT INTO orders (tenant_id, id) VALUES (5, <computed 1>)
-->   first key: (5)
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) VALUES (5, nextval('s'));
--> refused 0A000: nextval() in a statement on the sharded table orders would count on each shard by itself
-->   hint: Get the value in a statement of its own: SELECT nextval(...).
INSERT INTO orders AS o (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note WHERE o.id = 1;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT DO NOTHING;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET tenant_id = excluded.tenant_id;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (id, tenant_id) DO UPDATE SET tenant_id = excluded.tenant_id, note = excluded.note;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET tenant_id = excluded.id;
--> refused 0A000: ON CONFLICT DO UPDATE cannot change the shard key column tenant_id of table orders
-->   hint: Delete the row and insert it with the new key.
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET (tenant_id, note) = (excluded.tenant_id, excluded.note);
--> refused 0A000: ON CONFLICT DO UPDATE cannot change the shard key column tenant_id of table orders
-->   hint: Delete the row and insert it with the new key.
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT ON CONSTRAINT orders_pkey DO UPDATE SET tenant_id = excluded.tenant_id;
--> refused 0A000: ON CONFLICT DO UPDATE cannot change the shard key column tenant_id of table orders
-->   hint: Delete the row and insert it with the new key.
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (id) DO UPDATE SET tenant_id = excluded.tenant_id;
--> refused 0A000: ON CONFLICT DO UPDATE cannot change the shard key column tenant_id of table orders
-->   hint: Delete the row and insert it with the new key.
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT 5, id FROM items WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT id, tenant_id FROM items WHERE tenant_id = 5;
--> several shards [INSERT]
-->   operation: insert
-->   source: one shard: SELECT id, tenant_id FROM items WHERE tenant_id = 5
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items;
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard inserts what it selects
INSERT INTO orders (tenant_id, id) SELECT 5, g FROM generate_series(1, 10) g;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT $1::bigint, g FROM generate_series(1, 10) g;
--> one shard, key ($1::bigint) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT g, g FROM generate_series(1, 10) g;
--> several shards [INSERT]
-->   operation: insert
-->   source: any shard: SELECT g, g FROM generate_series(1, 10) g
-->   shard text: INSERT INTO orders (tenant_id, id) SELECT * FROM <relation 0> cleave_rel_0_
-->   why: the rows have different shard keys
INSERT INTO orders SELECT * FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT tenant_id, max(id) FROM items WHERE tenant_id = 5 GROUP BY tenant_id;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items WHERE tenant_id = 5 UNION ALL SELECT 5, 7;
--> one shard shard-0, key (5), (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) RETURNING (SELECT count(*) FROM items);
--> refused 0A000: an INSERT of rows for several shards cannot read table items in WITH, ON CONFLICT or RETURNING
-->   hint: Read it in a statement of its own.
INSERT INTO visits VALUES ('eu', 5, 'home');
--> one shard shard-0, key ('eu', 5) [INSERT]
INSERT INTO visits VALUES ('eu', $1, 'home');
--> one shard, key ('eu', $1) [INSERT]
INSERT INTO visits (region) VALUES ('eu');
--> refused 0A000: INSERT into visits gives no value for its shard key column visitor
-->   hint: Name the column visitor in the INSERT and give its value.
INSERT INTO notes SELECT id, note FROM orders WHERE tenant_id = 5;
--> several shards [INSERT]
-->   operation: modify
-->   read 0: one shard: SELECT id, note FROM orders WHERE tenant_id = 5
-->   shard text: INSERT INTO notes SELECT * FROM <relation 0> cleave_rel_0_
-->   shards: shard-0
-->   why: rows of other shards are read first
INSERT INTO notes VALUES (1, 'x');
--> default shard [INSERT]
INSERT INTO small VALUES (1, 'x');
--> several shards [INSERT]
-->   operation: modify
-->   shard text: INSERT INTO small VALUES (1, 'x') RETURNING small.id, small.label, small.tenant
-->   other shards: INSERT INTO small (id, label, tenant) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_ RETURNING small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
INSERT INTO nosuch VALUES (1);
--> default shard [INSERT]
-- UPDATE.
UPDATE orders SET note = 'x' WHERE tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
UPDATE orders SET note = 'x' WHERE tenant_id = 5 AND id = 1 RETURNING *;
--> one shard shard-0, key (5) [UPDATE, rows]
UPDATE orders SET note = 'x';
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE orders SET note = 'x'
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
UPDATE orders SET tenant_id = 6 WHERE tenant_id = 5;
--> several shards [UPDATE]
-->   operation: modify
-->   lock: SELECT orders.ctid::pg_catalog.text, 6::bigint, orders.tenant_id::bigint FROM orders WHERE tenant_id = 5 FOR UPDATE OF orders
-->   stay: UPDATE orders SET tenant_id = 6 WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND tenant_id = 5
-->   take: DELETE FROM orders WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND tenant_id = 5 RETURNING 6, orders.id, orders.note, orders.qty, orders.price, 6::bigint
-->   put: INSERT INTO orders (tenant_id, id, note, qty, price) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_
-->   shards: shard-0
-->   why: rows of several shards change
UPDATE orders SET (id, tenant_id) = (1, 5) WHERE tenant_id = 5;
--> several shards [UPDATE]
-->   operation: modify
-->   lock: SELECT orders.ctid::pg_catalog.text, 5::bigint, orders.tenant_id::bigint FROM orders WHERE tenant_id = 5 FOR UPDATE OF orders
-->   stay: UPDATE orders SET (id, tenant_id) = (1, 5) WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND tenant_id = 5
-->   take: DELETE FROM orders WHERE orders.ctid = ANY($2::pg_catalog.tid[]) AND tenant_id = 5 RETURNING 5, 1, orders.note, orders.qty, orders.price, 5::bigint
-->   put: INSERT INTO orders (tenant_id, id, note, qty, price) OVERRIDING SYSTEM VALUE SELECT * FROM <relation 0> cleave_rel_0_
-->   shards: shard-0
-->   why: rows of several shards change
UPDATE orders o SET note = i.name FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
UPDATE orders o SET note = i.name FROM items i WHERE i.order_id = o.id AND o.tenant_id = 5;
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT tenant_id, order_id, id, name FROM items
-->   shard text: UPDATE orders o SET note = i.name FROM <relation 0> i WHERE i.order_id = o.id AND o.tenant_id = 5
-->   shards: shard-0
-->   why: rows of several shards change
UPDATE orders SET note = (SELECT name FROM items i WHERE i.tenant_id = orders.tenant_id LIMIT 1) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
UPDATE orders SET note = (SELECT name FROM items LIMIT 1) WHERE tenant_id = 5;
--> several shards [UPDATE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT name FROM items LIMIT 1
-->   shard text: UPDATE orders SET note = (SELECT * FROM <relation 0> cleave_rel_0_) WHERE tenant_id = 5
-->   shards: shard-0
-->   why: rows of several shards change
UPDATE orders SET note = s.label FROM small s WHERE s.id = orders.id AND tenant_id = $1;
--> one shard, key ($1) [UPDATE]
UPDATE orders SET note = 'x' WHERE CURRENT OF c;
--> refused 0A000: WHERE CURRENT OF is not supported
-->   hint: Name the row by its key.
UPDATE small SET label = 'x';
--> several shards [UPDATE]
-->   operation: modify
-->   shard text: UPDATE small SET label = 'x' RETURNING small.id, small.label, small.tenant
-->   shards: shard-0, shard-1, shard-2
-->   why: every shard has the table's rows
UPDATE notes SET body = 'x';
--> default shard [UPDATE]
UPDATE notes SET body = 'x' FROM small WHERE small.id = notes.id;
--> default shard [UPDATE]
-- DELETE.
DELETE FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5) [DELETE]
DELETE FROM orders WHERE tenant_id = NULL;
--> one shard shard-0, key none can match [DELETE]
DELETE FROM orders;
--> several shards [DELETE]
-->   operation: modify
-->   shard text: DELETE FROM orders
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM orders USING items WHERE items.tenant_id = orders.tenant_id AND items.tenant_id = 5;
--> one shard shard-0, key (5) [DELETE]
DELETE FROM orders USING items i WHERE i.tenant_id = 5 AND orders.id = i.order_id;
--> several shards [DELETE]
-->   operation: modify
-->   read 0: several shards (scatter): SELECT tenant_id, order_id, id FROM items
-->   shard text: DELETE FROM orders USING <relation 0> i WHERE i.tenant_id = 5 AND orders.id = i.order_id
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
DELETE FROM notes WHERE id = 1;
--> default shard [DELETE]
-- MERGE.
MERGE INTO orders o USING (VALUES (5, 1)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i WHEN MATCHED THEN UPDATE SET note = 'x' WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (5, v.i);
--> one shard shard-0, key (5), (5) [MERGE]
MERGE INTO orders o USING items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN DELETE;
--> several shards [MERGE]
-->   operation: modify
-->   shard text: MERGE INTO orders o USING items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN DELETE
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (i.tenant_id, i.order_id);
--> one shard shard-0, key (5), (5) [MERGE]
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.id = i.order_id WHEN MATCHED THEN DELETE;
--> several shards [MERGE]
-->   operation: modify
-->   read 0: one shard: SELECT * FROM (SELECT * FROM items WHERE tenant_id = 5) i
-->   shard text: MERGE INTO orders o USING <relation 0> i ON o.id = i.order_id WHEN MATCHED THEN DELETE
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id WHEN MATCHED THEN UPDATE SET tenant_id = 6;
--> refused 0A000: MERGE into orders concerns several shards, and it changes the shard key
-->   hint: Use INSERT ... ON CONFLICT, UPDATE and DELETE, or join the source on the shard key.
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (i.id, 1);
--> refused 0A000: MERGE into orders concerns several shards, and it inserts rows whose shard key is not that of the source's row
-->   hint: Use INSERT ... ON CONFLICT, UPDATE and DELETE, or join the source on the shard key.
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id WHEN NOT MATCHED BY SOURCE THEN DELETE;
--> several shards [MERGE]
-->   operation: modify
-->   read 0: one shard: SELECT * FROM (SELECT * FROM items WHERE tenant_id = 5) i
-->   split: read 0 by (tenant_id)
-->   shard text: MERGE INTO orders o USING <relation 0> i ON o.tenant_id = i.tenant_id WHEN NOT MATCHED BY SOURCE THEN DELETE
-->   shards: shard-0, shard-1, shard-2
-->   why: rows of several shards change
