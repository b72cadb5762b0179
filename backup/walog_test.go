package backup

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cleavedb/cleave/internal/pgtest"
)

// logged are transactions over several shards by their ids, with where their steps are in the servers' log.
type logged map[string]*steps

// steps are those of one transaction.
type steps struct {
	prepared, committed map[string]uint64 // shard -> place
	decider             string
	decided             uint64
}

// part is what a shard's record says of one server transaction.
type part struct {
	id, shard string
	decided   bool
}

// readLog reads the log from a place on, with PostgreSQL's own reader. The databases are on one server.
func readLog(t *testing.T, urls []string, from string) logged {
	t.Helper()
	ctx := context.Background()
	c, err := pgx.Connect(ctx, pgtest.Super(urls[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_walinspect"); err != nil {
		t.Fatal(err)
	}
	rows, err := c.Query(ctx, `SELECT end_lsn::text, record_type, CASE record_type WHEN 'COMMIT_PREPARED' THEN split_part(description, ':', 1) ELSE xid::text END
		FROM pg_get_wal_records_info($1, pg_current_wal_flush_lsn()) WHERE resource_manager = 'Transaction'`, from)
	if err != nil {
		t.Fatal(err)
	}
	parts, found := parts(t, urls), logged{}
	var at, kind, xid string
	_, err = pgx.ForEachRow(rows, []any{&at, &kind, &xid}, func() error {
		p, ok := parts[xid]
		if !ok {
			return nil
		}
		s := found[p.id]
		if s == nil {
			s = &steps{prepared: map[string]uint64{}, committed: map[string]uint64{}}
			found[p.id] = s
		}
		switch {
		case kind == "PREPARE":
			s.prepared[p.shard] = lsn(t, at)
		case kind == "COMMIT_PREPARED":
			s.committed[p.shard] = lsn(t, at)
		case kind == "COMMIT" && p.decided:
			s.decider, s.decided = p.shard, lsn(t, at)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// parts are the server transactions of which the shards have records, by their numbers.
func parts(t *testing.T, urls []string) map[string]part {
	t.Helper()
	out := map[string]part{}
	for i, url := range urls {
		got := pgtest.Ask(t, pgtest.Super(url), "SELECT string_agg(concat_ws(' ', xid, id, decided IS TRUE), ',') FROM cleave_internal.transaction")
		for _, row := range strings.Split(got, ",") {
			if f := strings.Fields(row); len(f) == 3 {
				out[f[0]] = part{f[1], fmt.Sprint("shard-", i), f[2] == "t"}
			}
		}
	}
	return out
}

// torn says which transaction a cut has on one shard only, "" for none. What is prepared counts as its decision says.
func (l logged) torn(t *testing.T, cut *Cut) string {
	t.Helper()
	for id, s := range l {
		if s.decided == 0 {
			continue
		}
		decided := s.decided <= lsn(t, cut.Places[s.decider])
		for shard, at := range s.prepared {
			place := lsn(t, cut.Places[shard])
			if decided && at > place {
				return fmt.Sprintf("transaction %s is decided on %s, and not yet prepared on %s", id, s.decider, shard)
			}
			if c := s.committed[shard]; !decided && c > 0 && c <= place {
				return fmt.Sprintf("transaction %s is committed on %s, and not decided on %s", id, shard, s.decider)
			}
		}
	}
	return ""
}

func lsn(t *testing.T, text string) uint64 {
	t.Helper()
	var high, low uint64
	if _, err := fmt.Sscanf(text, "%X/%X", &high, &low); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return high<<32 | low
}
