-- Shard keys of other types, and how literals become values.
SELECT * FROM people WHERE name = 'bob';
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = 'it''s';
--> one shard shard-2, key ('it''s') [SELECT, read only, rows]
SELECT * FROM people WHERE name = E'a\nb';
--> one shard shard-0, key ('a\nb') [SELECT, read only, rows]
SELECT * FROM people WHERE name = U&'\0062ob';
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = $$bob$$;
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = 'bob'::text;
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = 'bob'::varchar;
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM people WHERE name = 'bob'::varchar(2);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 'bob'::varchar(2)
SELECT * FROM people WHERE name = 'bob'::char(5);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 'bob'::char(5)
SELECT * FROM people WHERE name = 'bob'::name;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 'bob'::name
SELECT * FROM people WHERE name = 'bob' COLLATE "C";
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 'bob' COLLATE "C"
SELECT * FROM people WHERE name COLLATE "C" = 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name COLLATE "C" = 'bob'
SELECT * FROM people WHERE name = 5;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = 5
SELECT * FROM people WHERE name = $1;
--> one shard, key ($1) [SELECT, read only, rows]
SELECT * FROM people WHERE name = $1::text;
--> one shard, key ($1::text) [SELECT, read only, rows]
SELECT * FROM people WHERE name = $1::varchar;
--> one shard, key ($1::character varying) [SELECT, read only, rows]
SELECT * FROM people WHERE name = $1::char(3);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = $1::char(3)
SELECT * FROM people WHERE lower(name) = 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE lower(name) = 'bob'
SELECT * FROM people WHERE name LIKE 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name LIKE 'bob'
SELECT * FROM people WHERE name ILIKE 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name ILIKE 'bob'
-- A column whose collation is not known says nothing about bytes.
SELECT * FROM people WHERE name = nick AND nick = 'bob';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM people WHERE name = nick AND nick = 'bob'
SELECT * FROM people p JOIN people q ON p.name = q.name WHERE p.name = 'bob';
--> one shard shard-0, key ('bob') [SELECT, read only, rows]
SELECT * FROM docs WHERE id = '6F9619FF-8B86-D011-B42D-00CF4FC964FF';
--> one shard shard-1, key ('6f9619ff-8b86-d011-b42d-00cf4fc964ff') [SELECT, read only, rows]
SELECT * FROM docs WHERE id = '{6f9619ff-8b86-d011-b42d-00cf4fc964ff}'::uuid;
--> one shard shard-1, key ('6f9619ff-8b86-d011-b42d-00cf4fc964ff') [SELECT, read only, rows]
SELECT * FROM docs WHERE id = uuid '6f9619ff-8b86-d011-b42d-00cf4fc964ff';
--> one shard shard-1, key ('6f9619ff-8b86-d011-b42d-00cf4fc964ff') [SELECT, read only, rows]
SELECT * FROM docs WHERE id = 'nonsense';
--> refused 22P02: invalid input syntax for type uuid: "nonsense" at 31
SELECT * FROM docs WHERE id = '6f9619ff-8b86-d011-b42d-00cf4fc964ff'::text::uuid;
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM docs WHERE id = '6f9619ff-8b86-d011-b42d-00cf4fc964ff'::text::uuid
SELECT * FROM docs WHERE id = ANY (ARRAY['6f9619ff-8b86-d011-b42d-00cf4fc964ff'::uuid]);
--> one shard shard-1, key ('6f9619ff-8b86-d011-b42d-00cf4fc964ff') [SELECT, read only, rows]
SELECT * FROM events WHERE at = '2024-01-01 10:00:00';
--> one shard shard-2, key ('2024-01-01 10:00:00') [SELECT, read only, rows]
SELECT * FROM events WHERE at = timestamp '2024-01-01 10:00:00';
--> one shard shard-2, key ('2024-01-01 10:00:00') [SELECT, read only, rows]
SELECT * FROM events WHERE at = date '2024-01-01';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = '2024-01-01'::date
SELECT * FROM events WHERE at = timestamptz '2024-01-01 10:00:00+00';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = '2024-01-01 10:00:00+00'::timestamptz
SELECT * FROM events WHERE at = day AND day = '2024-01-01';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = day AND day = '2024-01-01'
SELECT * FROM events WHERE at = now();
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = $1::timestamp with time zone
SELECT * FROM events WHERE at = 'now';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = 'now'
-->   asks: SELECT * FROM events WHERE at =  $1 
-- A shard says of which type the literal is.
--types 1114
SELECT * FROM events WHERE at = 'now';
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = $1::timestamp with time zone::timestamp
SELECT * FROM events WHERE at = $1::timestamp(0);
--> several shards [SELECT, read only, rows]
-->   operation: scatter
-->   shards: shard-0, shard-1, shard-2
-->   shard text: SELECT * FROM events WHERE at = $1::timestamp(0)
SELECT * FROM tags WHERE tag = 'abc';
--> one shard shard-0, key ('abc') [SELECT, read only, rows]
SELECT * FROM tags WHERE tag = 'abc   ';
--> one shard shard-2, key ('abc   ') [SELECT, read only, rows]
SELECT * FROM tags WHERE tag = 'abcdefg';
--> one shard shard-0, key ('abcdefg') [SELECT, read only, rows]
SELECT * FROM tags WHERE tag::text = 'abc';
--> one shard shard-0, key ('abc') [SELECT, read only, rows]
INSERT INTO tags VALUES ('abc', 1);
--> one shard shard-0, key ('abc') [INSERT]
INSERT INTO tags VALUES ('abcde   ', 1);
--> one shard shard-2, key ('abcde') [INSERT]
INSERT INTO tags VALUES ('abcdefg', 1);
--> refused 22001: value too long for type character varying(5)
-->   hint: use a shorter key, or a column of type text
SELECT * FROM offices WHERE region = 'eu';
--> one shard shard-1, key ('eu') [SELECT, read only, rows]
SELECT * FROM offices WHERE region = 'mars';
--> one shard shard-0, key ('mars') [SELECT, read only, rows]
INSERT INTO offices VALUES ('us', 'Boston');
--> one shard shard-2, key ('us') [INSERT]
-- A parameter that is used elsewhere could get its type there.
SELECT * FROM orders WHERE note = $1 AND tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows, strict $1]
SELECT * FROM orders WHERE id = $1 AND tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows]
SELECT * FROM orders WHERE qty = $1 AND tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows]
SELECT * FROM orders WHERE price = $1 AND tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows, strict $1]
SELECT * FROM orders WHERE tenant_id = $1 LIMIT $1;
--> one shard, key ($1) [SELECT, read only, rows, strict $1]
SELECT $1, * FROM orders WHERE tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows, strict $1]
SELECT $1::bigint, * FROM orders WHERE tenant_id = $1;
--> one shard, key ($1) [SELECT, read only, rows]
SELECT * FROM events WHERE day = $1 AND at = $1;
--> one shard, key ($1) [SELECT, read only, rows, strict $1]
INSERT INTO orders (tenant_id, id) VALUES ($1, $1);
--> one shard, key ($1) [INSERT]
INSERT INTO orders (tenant_id, note) VALUES ($1, $1);
--> one shard, key ($1) [INSERT, strict $1]
SELECT '2026-01-01 00:00:00'::timestamptz;
--> any shard [SELECT, read only, rows]
SELECT * FROM orders WHERE tenant_id = 5 AND 'now'::timestamp < now();
--> one shard shard-0, key (5) [SELECT, read only, rows]
