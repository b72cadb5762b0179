package several

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// TestPrinters: PostgreSQL reads what a printer prints as the value that it was, under every setting.
func TestPrinters(t *testing.T) {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, pgtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	exprs := []string{
		"0::float8", "'-0'::float8", "1 / 3.0::float8", "1e-310::float8", "1.7976931348623157e308::float8", "'NaN'::float8", "'-Infinity'::float8", "123456789012345678::float8",
		"point(1 / 3.0, -1e-310)", "point('NaN', 'Infinity')", "0.1::float4", "1 / 3.0::float4", "3.4028235e38::float4", "'Infinity'::float4", "1e-45::float4",
		"date '2024-02-29'", "date '0044-03-15 BC'", "date '12024-01-02'", "date 'infinity'", "date '-infinity'", "date '0001-01-01'",
		"timestamp '2024-02-29 03:04:05.678901'", "timestamp '4713-01-01 00:00:00 BC'", "timestamp '294276-12-31 23:59:59.999999'", "timestamp 'infinity'",
		"timestamptz '2024-07-05 12:00:00.000001+08'", "timestamptz '0044-03-15 01:02:03+00 BC'", "timestamptz '-infinity'",
		"ARRAY[1 / 3.0, NULL, 'NaN', -1e300]::float8[]", "'{}'::float8[]", "'[0:1][-2:0]={{0.1,NULL,3},{4,5,6.7}}'::float4[]", "ARRAY[timestamptz '2024-07-05 12:00+00', NULL]", "ARRAY[date '0044-03-15 BC', 'infinity']", "ARRAY[[timestamp '2024-07-05 12:00']]",
		"tstzrange('2024-07-05 12:00+00', '2024-07-05 12:00:00.5+00', '(]')", "'empty'::tstzrange", "tstzrange(NULL, '2024-07-05 12:00+00')", "tstzrange('infinity', NULL)",
	}
	for _, set := range []string{"RESET ALL", "SET DateStyle TO 'German, YMD'; SET TimeZone TO 'Asia/Shanghai'; SET extra_float_digits TO -15", "SET DateStyle TO 'Postgres, MDY'; SET TimeZone TO 'Europe/Dublin'", "SET DateStyle TO 'SQL, DMY'; SET TimeZone TO '<+0330>-03:30'"} {
		if _, err := conn.Exec(ctx, set); err != nil {
			t.Fatal(err)
		}
		for _, e := range exprs {
			res := conn.PgConn().ExecParams(ctx, "SELECT "+e, nil, nil, nil, []int16{1}).Read()
			if res.Err != nil {
				t.Fatalf("%s: %v", e, res.Err)
			}
			oid, v := res.FieldDescriptions[0].DataTypeOID, res.Rows[0][0]
			p := printerOf(oid)
			if p == nil {
				t.Fatalf("%s: no printer of type %d", e, oid)
			}
			text, err := p(nil, v)
			if err != nil {
				t.Fatalf("%s: %v", e, err)
			}
			back := conn.PgConn().ExecParams(ctx, "SELECT $1", [][]byte{text}, []uint32{oid}, nil, []int16{1}).Read()
			if back.Err != nil || string(back.Rows[0][0]) != string(v) {
				t.Errorf("%s: %s: printed %q, read back as %x, want %x (%v)", set, e, text, back.Rows, v, back.Err)
			}
			for n := range v {
				_, _ = p(nil, v[:n]) // no panic on what is cut
			}
		}
	}
}
