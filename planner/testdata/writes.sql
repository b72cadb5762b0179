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
--> several keys, but the statement needs rows of several shards, in a way that the router does not know how to carry out (SQLSTATE 0A000); hint: send one statement for each shard key
INSERT INTO orders (id) VALUES (1);
--> refused 0A000: INSERT into orders gives no value for its shard key column tenant_id
-->   hint: name the column tenant_id in the INSERT and give its value
INSERT INTO orders DEFAULT VALUES;
--> refused 0A000: INSERT ... DEFAULT VALUES gives no value for the shard key of orders
-->   hint: name the shard key column tenant_id and its value
INSERT INTO orders (tenant_id, id) VALUES (DEFAULT, 1);
--> refused 0A000: the value for the shard key column tenant_id of table orders is not a literal or a parameter, so its shard is not known before it runs
-->   hint: compute the value first and pass it as a parameter
INSERT INTO orders (tenant_id, id) VALUES (NULL, 1);
--> refused 23502: null value in column "tenant_id" of relation "orders" violates not-null constraint
INSERT INTO orders (tenant_id, id) VALUES (2 + 3, 1);
--> refused 0A000: the value for the shard key column tenant_id of table orders is not a literal or a parameter, so its shard is not known before it runs
-->   hint: compute the value first and pass it as a parameter
INSERT INTO orders (tenant_id, id) VALUES ((SELECT 5), 1);
--> refused 0A000: the value for the shard key column tenant_id of table orders is not a literal or a parameter, so its shard is not known before it runs
-->   hint: compute the value first and pass it as a parameter
INSERT INTO orders (tenant_id, id) VALUES (5.0, 1);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5.4, 1);
--> refused 0A000: the value for the shard key column tenant_id of table orders is not a literal or a parameter, so its shard is not known before it runs
-->   hint: compute the value first and pass it as a parameter
INSERT INTO orders (tenant_id, id) VALUES ('5', 1);
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES ('x', 1);
--> refused 22P02: invalid input syntax for type bigint: "x" at 44
-->   hint: write the key as PostgreSQL prints it
INSERT INTO orders (tenant_id, id) VALUES (99999999999999999999, 1);
--> refused 0A000: the value for the shard key column tenant_id of table orders is not a literal or a parameter, so its shard is not known before it runs
-->   hint: compute the value first and pass it as a parameter
INSERT INTO orders (tenant_id, id) VALUES (5, (SELECT max(id) FROM items WHERE tenant_id = 5));
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, (SELECT max(id) FROM items));
--> refused 0A000: the statement could need rows of table items from several shards: its shard key column tenant_id is not fixed
-->   hint: add "items.tenant_id = ..." to the WHERE clause
INSERT INTO orders (tenant_id, id) VALUES (5, nextval('s'));
--> refused 0A000: nextval() in a statement on the sharded table orders would count on each shard by itself
-->   hint: get the value in a statement of its own: SELECT nextval(...)
INSERT INTO orders AS o (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET note = excluded.note WHERE o.id = 1;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT DO NOTHING;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET tenant_id = excluded.tenant_id;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (id, tenant_id) DO UPDATE SET tenant_id = excluded.tenant_id, note = excluded.note;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET tenant_id = excluded.id;
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (tenant_id, id) DO UPDATE SET (tenant_id, note) = (excluded.tenant_id, excluded.note);
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT ON CONSTRAINT orders_pkey DO UPDATE SET tenant_id = excluded.tenant_id;
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
INSERT INTO orders (tenant_id, id) VALUES (5, 1) ON CONFLICT (id) DO UPDATE SET tenant_id = excluded.tenant_id;
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT 5, id FROM items WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT id, tenant_id FROM items WHERE tenant_id = 5;
--> refused 0A000: the rows for orders get their shard key tenant_id from a query that does not fix it
-->   hint: select rows of one key: add "... = value" for the column that becomes tenant_id
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items;
--> refused 0A000: the statement could need rows of table items from several shards: its shard key column tenant_id is not fixed
-->   hint: add "items.tenant_id = ..." to the WHERE clause
INSERT INTO orders (tenant_id, id) SELECT 5, g FROM generate_series(1, 10) g;
--> one shard shard-0, key (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT $1::bigint, g FROM generate_series(1, 10) g;
--> one shard, key ($1::bigint) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT g, g FROM generate_series(1, 10) g;
--> refused 0A000: the rows for orders get their shard key tenant_id from a query that does not fix it
-->   hint: select rows of one key: add "... = value" for the column that becomes tenant_id
INSERT INTO orders SELECT * FROM orders WHERE tenant_id = 5;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT tenant_id, max(id) FROM items WHERE tenant_id = 5 GROUP BY tenant_id;
--> one shard shard-0, key (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) SELECT tenant_id, id FROM items WHERE tenant_id = 5 UNION ALL SELECT 5, 7;
--> one shard shard-0, key (5), (5), (5) [INSERT]
INSERT INTO orders (tenant_id, id) VALUES (5, 1) RETURNING (SELECT count(*) FROM items);
--> refused 0A000: the statement could need rows of table items from several shards: its shard key column tenant_id is not fixed
-->   hint: add "items.tenant_id = ..." to the WHERE clause
INSERT INTO visits VALUES ('eu', 5, 'home');
--> one shard shard-0, key ('eu', 5) [INSERT]
INSERT INTO visits VALUES ('eu', $1, 'home');
--> one shard, key ('eu', $1) [INSERT]
INSERT INTO visits (region) VALUES ('eu');
--> refused 0A000: INSERT into visits gives no value for its shard key column visitor
-->   hint: name the column visitor in the INSERT and give its value
INSERT INTO notes SELECT id, note FROM orders WHERE tenant_id = 5;
--> refused 0A000: table orders is sharded and notes is on the default shard only
-->   hint: use them in two statements, or declare notes as a reference table
INSERT INTO notes VALUES (1, 'x');
--> default shard [INSERT]
INSERT INTO small VALUES (1, 'x');
--> refused 0A000: writes to the reference table small are not supported yet
-->   hint: its rows would have to change on every shard at once
INSERT INTO nosuch VALUES (1);
--> default shard [INSERT]
-- UPDATE.
UPDATE orders SET note = 'x' WHERE tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
UPDATE orders SET note = 'x' WHERE tenant_id = 5 AND id = 1 RETURNING *;
--> one shard shard-0, key (5) [UPDATE, rows]
UPDATE orders SET note = 'x';
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
UPDATE orders SET tenant_id = 6 WHERE tenant_id = 5;
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
UPDATE orders SET (id, tenant_id) = (1, 5) WHERE tenant_id = 5;
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
UPDATE orders o SET note = i.name FROM items i WHERE i.tenant_id = o.tenant_id AND o.tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
UPDATE orders o SET note = i.name FROM items i WHERE i.order_id = o.id AND o.tenant_id = 5;
--> refused 0A000: the statement could need rows of table items from several shards: its shard key column tenant_id is not fixed
-->   hint: add "i.tenant_id = ..." to the WHERE clause
UPDATE orders SET note = (SELECT name FROM items i WHERE i.tenant_id = orders.tenant_id LIMIT 1) WHERE tenant_id = 5;
--> one shard shard-0, key (5) [UPDATE]
UPDATE orders SET note = (SELECT name FROM items LIMIT 1) WHERE tenant_id = 5;
--> refused 0A000: the statement could need rows of table items from several shards: its shard key column tenant_id is not fixed
-->   hint: add "items.tenant_id = ..." to the WHERE clause
UPDATE orders SET note = s.label FROM small s WHERE s.id = orders.id AND tenant_id = $1;
--> one shard, key ($1) [UPDATE]
UPDATE orders SET note = 'x' WHERE CURRENT OF c;
--> refused 0A000: WHERE CURRENT OF is not supported
-->   hint: name the row by its key
UPDATE small SET label = 'x';
--> refused 0A000: writes to the reference table small are not supported yet
-->   hint: its rows would have to change on every shard at once
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
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
DELETE FROM orders USING items WHERE items.tenant_id = orders.tenant_id AND items.tenant_id = 5;
--> one shard shard-0, key (5) [DELETE]
DELETE FROM orders USING items i WHERE i.tenant_id = 5 AND orders.id = i.order_id;
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
DELETE FROM notes WHERE id = 1;
--> default shard [DELETE]
-- MERGE.
MERGE INTO orders o USING (VALUES (5, 1)) v(t, i) ON o.tenant_id = v.t AND o.id = v.i WHEN MATCHED THEN UPDATE SET note = 'x' WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (5, v.i);
--> one shard shard-0, key (5), (5) [MERGE]
MERGE INTO orders o USING items i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN DELETE;
--> refused 0A000: the statement could need rows of table items from several shards: its shard key column tenant_id is not fixed
-->   hint: add "i.tenant_id = ..." to the WHERE clause
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id AND o.id = i.order_id WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (i.tenant_id, i.order_id);
--> one shard shard-0, key (5), (5) [MERGE]
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.id = i.order_id WHEN MATCHED THEN DELETE;
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "o.tenant_id = ..." to the WHERE clause
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id WHEN MATCHED THEN UPDATE SET tenant_id = 6;
--> refused 0A000: column tenant_id of table orders is its shard key: changing it would move the row to another shard
-->   hint: delete the row and insert it again with the new key, in two statements
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id WHEN NOT MATCHED THEN INSERT (tenant_id, id) VALUES (i.id, 1);
--> refused 0A000: the rows for orders get their shard key tenant_id from a query that does not fix it
-->   hint: select rows of one key: add "... = value" for the column that becomes tenant_id
MERGE INTO orders o USING (SELECT * FROM items WHERE tenant_id = 5) i ON o.tenant_id = i.tenant_id WHEN NOT MATCHED BY SOURCE THEN DELETE;
--> refused 0A000: WHEN NOT MATCHED BY SOURCE looks at every row of orders, which is on several shards
-->   hint: use DELETE or UPDATE with a fixed shard key for these rows
