-- IN lists, arrays, OR and rows: all keys have to be on one shard.
SELECT * FROM orders WHERE tenant_id IN (5);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
--> several keys, but the statement needs rows of several shards, in a way that the router does not know how to carry out (SQLSTATE 0A000); hint: send one statement for each shard key
SELECT * FROM orders WHERE tenant_id IN (5, 5, NULL);
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (NULL);
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5, '5');
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5.5, '5.0');
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id IN (5.5, 5);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5.5, $1);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id IN (5, 2::float8);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id IN ($1, $2);
--> one shard, key ($1), ($2) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id IN (5, id);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id IN (SELECT 5);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[5]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY['5']);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY['5']::bigint[]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1]);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1]::bigint[]);
--> one shard, key ($1::bigint) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = ANY (ARRAY[$1, 5]);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id = ANY ('{5}');
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id = ANY ($1);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id = SOME (ARRAY[5]);
--> one shard shard-0, key (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 OR tenant_id = 5;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND id = 1 OR tenant_id = 5 AND id = 2;
--> one shard shard-0, key (5), (5) [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 1 OR tenant_id = 2 OR tenant_id = 3 OR tenant_id = 4;
--> several keys, but the statement needs rows of several shards, in a way that the router does not know how to carry out (SQLSTATE 0A000); hint: send one statement for each shard key
SELECT * FROM orders WHERE (tenant_id = 5 OR note = 'x') AND (tenant_id = 5 OR id = 1);
--> refused 0A000: the statement could need rows of table orders from several shards: its shard key column tenant_id is not fixed
-->   hint: add "orders.tenant_id = ..." to the WHERE clause
SELECT * FROM orders WHERE tenant_id IN (1, 2, 3) AND tenant_id = 2;
--> one shard shard-2, key (2) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu' AND visitor = 5;
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) = ('eu', 5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE ROW(region, visitor) = ROW('eu', 5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (visitor, region) = (5, 'eu');
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5), ('us', 6), ('eu', 6), ('us', 5));
--> several keys, but the statement needs rows of several shards, in a way that the router does not know how to carry out (SQLSTATE 0A000); hint: send one statement for each shard key
SELECT * FROM visits WHERE (region, visitor) IN (('eu', 5), ('eu', NULL));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE region IN ('eu') AND visitor IN (5);
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu';
--> refused 0A000: the statement could need rows of table visits from several shards: its shard key column visitor is not fixed
-->   hint: add "visits.visitor = ..." to the WHERE clause
SELECT * FROM visits WHERE visitor = 5;
--> refused 0A000: the statement could need rows of table visits from several shards: its shard key column region is not fixed
-->   hint: add "visits.region = ..." to the WHERE clause
SELECT * FROM visits WHERE region = $1 AND visitor = $2;
--> one shard, key ($1, $2) [SELECT, read only, rows]
SELECT * FROM visits WHERE region = 'eu' AND visitor = 3000000000;
--> one shard shard-0, key none can match [SELECT, read only, rows]
SELECT * FROM visits WHERE (region, visitor) > ('eu', 5);
--> refused 0A000: the statement could need rows of table visits from several shards: its shard key column region is not fixed
-->   hint: add "visits.region = ..." to the WHERE clause
SELECT * FROM visits WHERE (region, visitor, page) IN (('eu', 5, 'x'));
--> one shard shard-0, key ('eu', 5) [SELECT, read only, rows]
