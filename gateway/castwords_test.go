package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestCastLooks: texts that shards cast to times are looked at twice, for a letter that each word has, and for the words.
// What passes is read as PostgreSQL reads it, whatever letters it has; what has a word is told of with the text, or the element, as the row has it.
func TestCastLooks(t *testing.T) {
	cl, conn, keys := orders(t, config{shards: 2})
	ctx := context.Background()
	for _, c := range []struct{ typ, text, want string }{
		{"timestamptz", "2024-03-01 10:00:00+00", ""},
		{"timestamptz", "Wednesday January 3 2024 10:00 UTC", ""}, // passes the second look
		{"timestamptz", "Friday 5 May 2023 00:00 UTC", ""},
		{"date", "WED 3 JAN 2024", ""},
		{"date", "infinity", ""},
		{"date", "epoch", ""},
		{"date", "snow", "snow"}, // no date in any case
		{"date", "what a day", "22007"},
		{"timestamptz", "now", "now"},
		{"timestamptz", " NoW ", " NoW "},
		{"timestamptz", "today 12:00 UTC", "today 12:00 UTC"},
		{"date", "Tomorrow", "Tomorrow"},
		{"date", "YESTERDAY", "YESTERDAY"},
		{"time", "allballs", ""},
		{"date[]", "{2024-01-01,2024-05-03}", ""},
		{"date[]", `{2024-01-01,"now"}`, "now"},
		{"date[]", `{n\ow}`, "now"},
		{"daterange", "[2024-01-01,2024-05-03)", ""},
		{"daterange", "[today,2999-05-03)", "today"},
	} {
		exec(t, conn, "DELETE FROM orders")
		for i, k := range []int64{keys[0][0], keys[1][0], keys[0][1]} {
			text := c.text
			if i == 2 {
				text = "2024-01-01"
				if strings.HasSuffix(c.typ, "[]") {
					text = "{2024-01-01}"
				} else if c.typ == "daterange" {
					text = "[2024-01-01,)"
				} else if c.typ == "time" {
					text = "10:00"
				}
			}
			exec(t, conn, "INSERT INTO orders VALUES ($1, $2, $3)", k, i, text)
		}
		var got string
		err := conn.QueryRow(ctx, fmt.Sprintf("SELECT string_agg((note::%s)::text, ' ' ORDER BY id) FROM orders", c.typ)).Scan(&got)
		if c.want == "" {
			want := cl.direct(t, 0, fmt.Sprintf("SELECT '%[1]s'::%[2]s::text || ' ' || '%[1]s'::%[2]s::text", c.text, c.typ))
			if err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%s of %q: %q, %v; want %q", c.typ, c.text, got, err, want)
			}
			continue
		}
		pe, ok := errors.AsType[*pgconn.PgError](err)
		switch {
		case !ok:
			t.Errorf("%s of %q: %q, %v", c.typ, c.text, got, err)
		case len(c.want) == 5 && c.want[0] == '2' && pe.Code == c.want:
		case pe.Code != "0A000" || !strings.HasPrefix(pe.Message, "the text '"+c.want+"', cast to a time, has a word for the time") || pe.Hint == "":
			t.Errorf("%s of %q: %s %s", c.typ, c.text, pe.Code, pe.Message)
		}
		// One shard alone reads them by its own clock, which is the transaction's.
		wantCode(t, conn, map[bool]string{true: "22007"}[c.text == "snow" || c.want == "22007"], fmt.Sprintf("SELECT note::%s FROM orders WHERE tenant_id = $1", c.typ), keys[0][0])
	}
}
