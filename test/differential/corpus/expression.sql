-- Functions, operators and casts on rows of several shards; errors that depend on rows.

-- foreach e: upper(name) | lower(name) | initcap(name) | length(name) | char_length(name) | octet_length(name) | reverse(name) | left(name, 2) | right(name, -1) | lpad(name, 5) | rpad(name, 4, '.') | ltrim(name, 'A') | rtrim(name, 'aeo') | btrim(name, 'bt') | trim(both 'o' from name) | substr(name, 2, 2) | substring(name from 2) | replace(name, 'a', 'AA') | translate(name, 'aeo', '123') | repeat(name, 2) | strpos(name, 'a') | position('a' in name) | split_part(email, '@', 1) | starts_with(name, 'A') | concat(name, NULL, age) | concat_ws('-', name, age, NULL) | ascii(name) | chr(age + 60) | md5(name) | overlay(name placing 'X' from 2) | quote_literal(name) | quote_ident(name) | format('%s|%I', name, name) | encode(name::bytea, 'hex') | name || age | name || NULL | name LIKE '%a%' | name NOT LIKE 'A%' | name ILIKE 'a%' | name LIKE '_o%' | name ~ '^[A-F]' | name ~* '^[a-f]' | name !~ 'a' | name !~* 'A' | name SIMILAR TO '(A|b)%' | name < 'd' | name BETWEEN 'A' AND 'Z' | greatest(name, 'M') | least(name, email) | coalesce(name, '?') | nullif(name, 'bob') | name IS NULL | to_hex(age) | name = 'Öde' | lower(name) = 'öde' | length('ä' || name)
SELECT email, ${e} AS e FROM customers;
-- only: postgres
-- foreach e: regexp_replace(name, '[aeiou]', '*', 'g') | regexp_match(name, '([A-Z])(.)') | regexp_split_to_array(email, '@') | string_to_array(email, '@') | sha256(name::bytea) | unaccent(name) | normalize(name) | to_ascii(name) | convert_to(name, 'LATIN1') | parse_ident(lower(name)) | to_tsvector('simple', name) | soundex(name) | regexp_count(name, 'a') | quote_nullable(name) | string_to_table(name, 'o') | bit_length(name) | name::char(3) | name::varchar(2) | name::name | substring(name similar 'a#"%#"' escape '#') | name ^@ 'A'
SELECT email, ${e} AS e FROM customers;
-- foreach e: balance + 1 | balance - age | balance * 2.5 | balance / 3 | balance % 2 | -balance | abs(balance) | round(balance) | round(balance, 1) | trunc(balance, 1) | ceil(balance) | floor(balance) | sign(balance) | mod(balance, 3) | div(balance, 3) | balance::integer | balance::bigint | balance::smallint | balance::numeric(6,2) | balance::text | balance::numeric(3,1) | balance > 0 | balance = 0 | balance BETWEEN -50 AND 50 | age / 2 | age % 7 | age & 3 | age # 5 | ~age | age << 1 | age >> 1 | age::bigint * 1000000000 | age * 100000000 | age::smallint | gcd(age, 6) | age + NULL | scale(balance) | age = balance | balance::double precision | age / 0 | balance / 0 | 1 / (age - 20) | age::text::integer | 'x'::integer | name::integer | (age || '0')::integer
SELECT email, ${e} AS e FROM customers;
-- loose
-- only: postgres
-- foreach e: sqrt(age) | exp(age / 10.0) | ln(age) | log(age) | power(age, 2) | power(balance, 2) | sqrt(balance) | sin(age) | age ^ 2 | |/ age | cbrt(age) | atan2(age, 3) | degrees(age) | log(2, age) | age::real / 3 | balance::double precision / 7 | width_bucket(age, 20, 30, 5) | trim_scale(balance) | min_scale(balance) | lcm(age, 4) | factorial(age - 19) | to_char(balance, 'S999D99') | to_number(age::text, '99')
SELECT email, ${e} AS e FROM customers WHERE age > 0;
-- foreach e: at + interval '1 hour' | at - interval '1 month' | at - timestamp '2024-01-01' | at::date | at::time | date_trunc('hour', at) | date_trunc('day', at) | date_trunc('month', at) | date_trunc('year', at) | extract(year FROM at) | extract(month FROM at) | extract(day FROM at) | extract(hour FROM at) | extract(minute FROM at) | extract(dow FROM at) | extract(doy FROM at) | extract(week FROM at) | extract(epoch FROM at) | date_part('hour', at) | to_char(at, 'YYYY-MM-DD') | to_char(at, 'Day DD Mon YYYY HH12:MI AM') | at > '2024-02-01' | at BETWEEN '2024-02-01' AND '2024-03-01' | at::date - date '2024-01-01' | at::date + weight | date '2024-01-01' + weight | age(at, timestamp '2024-01-01') | at AT TIME ZONE 'UTC' | at::timestamptz | at::text | greatest(at, timestamp '2024-02-01') | make_date(2024, weight + 1, 1) | isfinite(at) | (at, at + interval '2 days') OVERLAPS (timestamp '2024-02-01', timestamp '2024-02-10')
SELECT at, ${e} AS e FROM events;
-- only: postgres
-- foreach e: at::timestamptz AT TIME ZONE 'Asia/Tokyo' | timezone('America/New_York', at) | date_bin('7 days', at, timestamp '2024-01-01') | make_interval(days => weight) | justify_hours(at - timestamp '2024-01-01') | interval '1 day' * weight | extract(isoyear FROM at) | extract(quarter FROM at) | extract(century FROM at) | to_char(at, 'IYYY-IW Q') | at::abstime | make_timestamp(2024, 1, 1, weight, 0, 0) | tsrange(at, at + interval '1 day') | at::timestamp(0)
SELECT at, ${e} AS e FROM events;
-- foreach e: CASE WHEN value > 1 THEN 'a' WHEN value < 0 THEN 'b' ELSE 'c' END | CASE value WHEN 1 THEN 10 WHEN 2 THEN 20 END | CASE WHEN value = 0 THEN 0 ELSE 6 / value END | coalesce(value, seq, 0) | coalesce(value, exact) | nullif(value, seq) | greatest(value, seq, 2) | least(value, NULL, 3) | value IN (1, 2, NULL) | value IS DISTINCT FROM seq | (value > 1) AND (exact > 100) | (value > 1) OR (exact > 100) | NOT (value > 1) | (value > 1) IS UNKNOWN | (value, seq) = (1, 1) | (value, seq) < (2, 2) | (value, seq) IS NULL | (value, unit) IS NOT NULL | value::boolean | (value > 0)::integer | value BETWEEN SYMMETRIC 3 AND 1 | exact::integer | exact::bigint / 3 | exact::numeric(8,3) | round(exact, 2)::text | seq::numeric / 3 | seq / 3.0 | seq::numeric(4,2) | sensor * 1.10 | 10 / seq | 10.0 / seq | sensor || ':' || seq | sensor::text < '2' | unit || sensor | 1e3 * seq | 0.1 + seq | exact = exact::text::numeric
SELECT sensor, seq, ${e} AS e FROM readings;
-- anyerror
-- foreach e: 1 / (value - 1) | 1 / value | (sensor - 13)::smallint * 32767::smallint | sensor * 2000000000 | sensor::bigint * 9223372036854775807 | ('x' || sensor)::integer | unit::integer | (sensor || '-13-01')::date | exact::smallint | (value::text || 'e400')::double precision | repeat('9', sensor * 2)::integer | substr(unit, 1, -1) | chr(value - 10000) | chr(value * 0)
SELECT ${e} FROM readings;
-- foreach e: 1 / (value - 1) > 0 | sensor * 2000000000 > 1 | ('x' || unit)::integer = 1 | 10 / seq > 3
SELECT sensor, seq FROM readings WHERE ${e};
SELECT 1 / 0 FROM orders;
-- only: postgres
SELECT 1 / 0 FROM nothing;
SELECT 1 / k FROM nothing;
SELECT 'x'::integer FROM nothing;
SELECT CASE WHEN qty > 0 THEN 1 ELSE 1 / 0 END FROM orders;
-- only: postgres
SELECT coalesce(qty, 1 / 0) FROM orders WHERE qty IS NOT NULL;
SELECT nosuchfunction(qty) FROM orders;
SELECT upper(qty) FROM orders;
SELECT qty + status FROM orders;
SELECT qty || price FROM orders;
SELECT status - 1 FROM orders;
SELECT NOT qty FROM orders;
SELECT qty::nosuchtype FROM orders;
SELECT pg_typeof(qty), pg_typeof(price), pg_typeof(status), pg_typeof(at), pg_typeof(sum(qty) OVER ()) FROM orders LIMIT 1;
SELECT pg_typeof(sum(qty)), pg_typeof(avg(qty)), pg_typeof(sum(price)), pg_typeof(count(*)), pg_typeof(max(at)), pg_typeof(sum(tenant_id)) FROM orders;
SELECT current_schema, current_database() IS NOT NULL FROM orders WHERE tenant_id = 3 AND id = 1;
SELECT now() = now(), now() = transaction_timestamp(), current_date = now()::date FROM orders;
SELECT count(DISTINCT now()) FROM orders;
SELECT count(DISTINCT statement_timestamp()) FROM orders;
SELECT max(now()) = min(now()) FROM orders;
SELECT count(*) FROM orders WHERE at < now() AND day <= current_date;
SELECT count(DISTINCT x) FROM (SELECT now() AS x FROM orders UNION ALL SELECT now() FROM items) u;
SELECT count(*) FROM (SELECT random() AS r FROM orders) x WHERE r >= 0 AND r < 1;
SELECT count(DISTINCT random()) > 10 FROM orders;
SELECT count(DISTINCT gen_random_uuid()) = count(*) FROM orders;
-- shape
SELECT id, random() FROM orders;
-- shape
SELECT id, clock_timestamp() FROM orders ORDER BY tenant_id, id;
-- shape
SELECT gen_random_uuid() FROM orders WHERE qty > 2;
-- shape
SELECT id FROM orders ORDER BY random();
-- shape
SELECT random() FROM orders ORDER BY 1 LIMIT 3;
-- params: 5 | x
SELECT qty + $1, status || $2 FROM orders;
-- params: 2.5
SELECT price * $1, price > $1 FROM orders;
-- params: 2024-02-01
SELECT day - $1, at > $1 FROM orders;
-- params: t
SELECT id FROM orders WHERE paid = $1;
-- params: 1 day
SELECT at + $1::interval FROM orders;
-- params: o%
SELECT tenant_id, id FROM orders WHERE status LIKE $1;
-- params: {new,sent}
SELECT tenant_id, id FROM orders WHERE status = ANY ($1);
-- params: 3
-- types: 23
SELECT tenant_id, id, $1 FROM orders WHERE qty = $1;
-- params: 3
-- types: 20
SELECT tenant_id, id, $1 FROM orders WHERE qty = $1;
-- params: 3.0
-- types: 1700
SELECT tenant_id, id, $1 FROM orders WHERE qty = $1;
-- params: new
-- types: 1043
SELECT tenant_id, id, $1 FROM orders WHERE status = $1;
-- params: x
-- types: 23
SELECT tenant_id, id, $1 FROM orders WHERE qty = $1;
-- params: abc
SELECT $1 FROM orders WHERE tenant_id = 3;
-- params: 1 | 2
SELECT $2::text FROM orders WHERE qty = $1;
-- params: 1
SELECT $1::integer / 0 FROM orders;
-- params: d1b5c8a4-0000-0000-0000-000000000000
SELECT kind FROM devices WHERE id > $1;
-- params: \N
SELECT $1::integer IS NULL, id FROM orders WHERE qty = 1;
-- Operators of operators need their brackets.
SELECT count(*) FROM orders WHERE ((paid IS NOT DISTINCT FROM (qty = 3)) IS NOT TRUE) AND ((2 <= qty) NOT IN (false)) AND ((note NOT LIKE '%b') BETWEEN true AND true OR (id < 3) = (qty > 1));
SELECT max(id) FROM orders o WHERE ((id = 2) = (tenant_id IN (1, 2))) AND NOT ((id IS NULL) IS NULL);
