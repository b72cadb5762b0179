-- COPY in and out: text and csv, split by shard while it streams.

COPY orders (tenant_id, id, status, qty) FROM STDIN;
700	1	a	1
701	1	b	\N
702	1	\N	3
703	1	tab\there	4
704	1	line\nhere	5
705	1	back\\slash	6
\.
COPY orders (id, tenant_id) FROM STDIN WITH (FORMAT csv);
1,710
2,711
3,"712"
\.
COPY orders (tenant_id, id, status, note) FROM STDIN WITH (FORMAT csv, HEADER, DELIMITER ';', NULL '-');
tenant_id;id;status;note
720;1;"quoted; ""text""";-
721;2;plain;""
722;3;-;"two
lines"
\.
COPY orders (tenant_id, id, status) FROM STDIN CSV HEADER NULL 'nil';
tenant_id,id,status
725,1,nil
726,2,x
\.
COPY orders FROM STDIN WITH (DELIMITER '|', NULL 'nil');
730|1|x|1|1.50|2024-02-02|2024-02-02 10:00:00|t|note
731|2|nil|nil|nil|nil|nil|nil|nil
\.
COPY orders (tenant_id, id) FROM STDIN;
740	1
1	1
741	1
\.
COPY orders (tenant_id, id, qty) FROM STDIN;
742	1	1
743	1	x
\.
COPY orders (tenant_id, id) FROM STDIN;
744	1
745
\.
COPY orders (tenant_id, id) FROM STDIN;
\N	1
\.
COPY orders (id) FROM STDIN;
1
\.
COPY orders (tenant_id, nosuch) FROM STDIN;
1	1
\.
COPY nosuch FROM STDIN;
1
\.
COPY orders (tenant_id, id) FROM STDIN;
\.
COPY customers (email, name, balance) FROM STDIN WITH (FORMAT csv);
c1@x,C One,1.5
c2@x,"C, Two",
"c""3@x",,-3
\.
COPY devices (id, kind) FROM STDIN;
00000000-0000-0000-0000-0000000000aa	x
f0000000-0000-0000-0000-0000000000bb	y
\.
COPY visits FROM STDIN;
eu	900	1	a
us	901	2	\N
	902	3	b
\.
COPY readings (sensor, seq, value) FROM STDIN;
2	90	1
6	90	2
12	90	3
24	90	\N
\.
COPY events (at, id) FROM STDIN;
2024-01-01 00:00:00	91
2024-03-01 00:00:00	91
2025-01-01 00:00:00	91
\.
COPY stock (class, id) FROM STDIN;
a	91
d	91
\.
COPY countries (id, code, name) FROM STDIN;
90	zz	Zed
91	yy	Why
\.
COPY settings (id, name) FROM STDIN;
90	x
91	y
\.
-- foreach t: orders | items (id, tenant_id, sku) | customers | visits | readings (sensor, exact) | events | stock | countries | settings | nothing
-- foreach o: | WITH (FORMAT csv) | WITH (FORMAT csv, HEADER) | WITH (DELIMITER ';', NULL 'null')
COPY ${t} TO STDOUT ${o};
-- foreach q: SELECT tenant_id, id FROM orders ORDER BY tenant_id, id | SELECT status, count(*) FROM orders GROUP BY status ORDER BY status | SELECT o.id, i.sku FROM orders o JOIN items i ON i.tenant_id = o.tenant_id AND i.order_id = o.id ORDER BY 1, 2, o.tenant_id, i.id | SELECT tenant_id, id FROM orders WHERE tenant_id = 3 ORDER BY id | SELECT o.id FROM orders o JOIN items i ON i.n = o.qty ORDER BY o.tenant_id, o.id, i.tenant_id, i.id | VALUES (1, 'a'), (2, NULL) | SELECT max(price) FROM orders
-- foreach o: | WITH (FORMAT csv, HEADER)
COPY (${q}) TO STDOUT ${o};
COPY (SELECT tenant_id, id, status FROM orders ORDER BY 1, 2) TO STDOUT CSV NULL 'nil' HEADER;
-- only: postgres
COPY (DELETE FROM items WHERE n = 1 RETURNING tenant_id, id) TO STDOUT;
COPY orders (nosuch) TO STDOUT;
COPY (SELECT 1 / 0 FROM orders) TO STDOUT;
-- block
BEGIN;
COPY orders (tenant_id, id) FROM STDIN;
750	1
751	1
752	1
\.
SELECT count(*) FROM orders WHERE tenant_id >= 750;
ROLLBACK;
-- end
-- block
BEGIN;
UPDATE orders SET note = 'before' WHERE tenant_id = 2;
COPY orders (tenant_id, id) FROM STDIN;
760	1
761	1
762	1
\.
COPY (SELECT tenant_id FROM orders WHERE tenant_id >= 760 ORDER BY 1) TO STDOUT;
COMMIT;
-- end
