package planner

import (
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wide are long statements over sharded tables, in each place where a list or a
// chain may stand.
var wide = map[string]func(n int) string{
	"or of keys": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id = 1" + strings.Repeat(" OR tenant_id = 2", n)
	},
	"or of others": func(n int) string { return "SELECT * FROM orders WHERE id = 1" + strings.Repeat(" OR id = 2", n) },
	"or beside a key": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id = 1 AND (id = 1" + strings.Repeat(" OR id = 2", n) + ")"
	},
	"or of ands": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id = 1" + strings.Repeat(" OR tenant_id = 2 AND id = 3", n)
	},
	"and of keys": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id = 1" + strings.Repeat(" AND tenant_id = 1", n)
	},
	"and of others": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id = 1" + strings.Repeat(" AND id <> 1", n)
	},
	"and, several shards": func(n int) string { return "SELECT * FROM orders WHERE id = 1" + strings.Repeat(" AND id <> 1", n) },
	"ands of a join": func(n int) string {
		return "SELECT 1 FROM orders o, items i WHERE o.tenant_id = i.tenant_id" + strings.Repeat(" AND o.id = i.order_id", n)
	},
	"in": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id IN (1" + strings.Repeat(",2", n) + ")"
	},
	"in of others": func(n int) string { return "SELECT * FROM orders WHERE id IN (1" + strings.Repeat(",2", n) + ")" },
	"parameters": func(n int) string {
		return "SELECT * FROM orders WHERE tenant_id IN ($1" + strings.Repeat(",$1", n) + ")"
	},
	"columns": func(n int) string { return "SELECT id" + strings.Repeat(",id", n) + " FROM orders" },
	"calls": func(n int) string {
		return "SELECT abs(id)" + strings.Repeat(",abs(id)", n) + " FROM orders WHERE tenant_id = 1"
	},
	"calls, several": func(n int) string { return "SELECT abs(id)" + strings.Repeat(",abs(id)", n) + " FROM orders" },
	"aggregates":     func(n int) string { return "SELECT count(*)" + strings.Repeat(",sum(id)", n) + " FROM orders" },
	"group by":       func(n int) string { return "SELECT 1 FROM orders GROUP BY id" + strings.Repeat(",id", n) },
	"order by":       func(n int) string { return "SELECT id FROM orders ORDER BY id" + strings.Repeat(",id", n) },
	"case": func(n int) string {
		return "SELECT CASE" + strings.Repeat(" WHEN id = 1 THEN 2", n) + " END FROM orders"
	},
	"values": func(n int) string {
		return "INSERT INTO orders (tenant_id, id) VALUES (1,1)" + strings.Repeat(",(1,1)", n)
	},
	"values, several": func(n int) string {
		return "INSERT INTO orders (tenant_id, id) VALUES (1,1)" + strings.Repeat(",(2,1)", n)
	},
	"set": func(n int) string {
		return "UPDATE orders SET id = 1" + strings.Repeat(",id = 1", n) + " WHERE tenant_id = 1"
	},
	"from":        func(n int) string { return "SELECT 1 FROM orders" + strings.Repeat(",orders", n) },
	"from, named": func(n int) string { return "SELECT 1 FROM small" + strings.Repeat(",small", n) },
	"with": func(n int) string {
		return "WITH a AS (SELECT 1)" + strings.Repeat(",a AS (SELECT 1)", n) + " SELECT * FROM orders"
	},
	"joins":      func(n int) string { return "SELECT 1 FROM orders" + strings.Repeat(" JOIN items USING (tenant_id)", n) },
	"union":      func(n int) string { return "SELECT id FROM orders" + strings.Repeat(" UNION SELECT id FROM orders", n) },
	"subqueries": func(n int) string { return "SELECT (SELECT 1)" + strings.Repeat(",(SELECT 1)", n) + " FROM orders" },
	"times":      func(n int) string { return "SELECT now()" + strings.Repeat(",now()", n) + " FROM orders" },
	"words for times": func(n int) string {
		return "SELECT 'now'::timestamptz" + strings.Repeat(",'now'::timestamptz", n) + " FROM orders"
	},
	"statements":         func(n int) string { return strings.Repeat("SELECT 1;", n) },
	"column definitions": func(n int) string { return "CREATE TABLE t (a int" + strings.Repeat(",a int NOT NULL", n) + ")" },
	"alter":              func(n int) string { return "ALTER TABLE orders ADD a int" + strings.Repeat(",ADD a int", n) },
	"drop":               func(n int) string { return "DROP TABLE orders" + strings.Repeat(",orders", n) },
	"chain":              func(n int) string { return "SELECT id" + strings.Repeat("+id", n) + " FROM orders" },
	"chain of strings":   func(n int) string { return "SELECT 'a'" + strings.Repeat("||'a'", n) + " FROM orders" },
	"brackets": func(n int) string {
		return "SELECT * FROM orders WHERE " + strings.Repeat("(", n) + "id = 1" + strings.Repeat(")", n)
	},
	"nested selects": func(n int) string {
		return strings.Repeat("SELECT * FROM (", n) + "SELECT * FROM orders" + strings.Repeat(") a", n)
	},
	"nested, one shard": func(n int) string {
		return strings.Repeat("SELECT * FROM (", n) + "SELECT * FROM orders WHERE tenant_id = 1" + strings.Repeat(") a", n)
	},
	"nested in": func(n int) string {
		return "SELECT * FROM orders WHERE id IN (" + strings.Repeat("SELECT id FROM orders WHERE id IN (", n) + "1" + strings.Repeat(")", n) + ")"
	},
	"nested exists": func(n int) string {
		return "SELECT * FROM orders WHERE " + strings.Repeat("EXISTS (SELECT 1 FROM orders WHERE ", n) + "true" + strings.Repeat(")", n)
	},
	"nested calls": func(n int) string {
		return "SELECT " + strings.Repeat("abs(", n) + "id" + strings.Repeat(")", n) + " FROM orders"
	},
	"nested case": func(n int) string {
		return "SELECT " + strings.Repeat("CASE WHEN true THEN ", n) + "id" + strings.Repeat(" END", n) + " FROM orders"
	},
	"nested with": func(n int) string {
		return strings.Repeat("WITH a AS (", n) + "SELECT * FROM orders" + strings.Repeat(") SELECT * FROM a", n)
	},
	"nested not": func(n int) string {
		return "SELECT * FROM orders WHERE " + strings.Repeat("NOT (", n) + "id = 1" + strings.Repeat(")", n)
	},
	"nested or": func(n int) string {
		return "SELECT * FROM orders WHERE " + strings.Repeat("(tenant_id = 1 OR ", n) + "id = 1" + strings.Repeat(")", n)
	},
	"nested and or": func(n int) string {
		return "SELECT * FROM orders WHERE " + strings.Repeat("(tenant_id = 1 AND (tenant_id = 2 OR ", n) + "id = 1" + strings.Repeat("))", n)
	},
	"products of or": func(n int) string {
		return "SELECT * FROM orders WHERE true" + strings.Repeat(" AND (tenant_id = 1 OR tenant_id = 2)", n)
	},
	"products of two keys": func(n int) string {
		return "SELECT * FROM visits WHERE true" + strings.Repeat(" AND (region = 'a' OR visitor = 2)", n)
	},
}

// quadratic are the shapes whose time grows with the square of their depth, since
// the plan of each level looks into all levels below it. The guard's 250 brackets and
// its 2,000 links bound it.
var quadratic = map[string]time.Duration{
	"chain":            30 * time.Second,
	"chain of strings": 30 * time.Second,
	"nested in":        30 * time.Second,
	"nested exists":    30 * time.Second,
}

// used is the time that a processor has worked for this thread, whatever else it works for (getrusage(2), RUSAGE_THREAD).
func used() time.Duration {
	var ru syscall.Rusage
	if err := syscall.Getrusage(1, &ru); err != nil {
		panic(err)
	}
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// TestTimeGrowsWithLength analyzes long statements, for one shard and for
// several. What passes the limits may take a time in proportion to its length: at most
// ten times as long for four times the text (16 would be quadratic), unless it is
// over in a second.
func TestTimeGrowsWithLength(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	snap := testSnapshot(t)
	p := New(Limits{})
	took := func(sql string) time.Duration {
		from := used()
		if _, err := p.Analyze(sql, snap, []string{"public"}); err != nil {
			_, _ = p.Several(sql, snap, []string{"public"})
		}
		return used() - from
	}
	for name, shape := range wide {
		n := 1 << 12
		for p.parser().Check(shape(n)) != nil {
			n = n * 3 / 4
		}
		long := took(shape(n))
		if long <= max(time.Second, quadratic[name]) {
			continue
		}
		short := took(shape(n / 4))
		for i := 0; i < 3 && long > 10*short; i++ {
			long, short = min(long, took(shape(n))), max(short, took(shape(n/4)))
		}
		// The first measure may have been a busy machine's.
		if long > max(time.Second, quadratic[name]) && long > 10*short {
			t.Errorf("%s: %d take %v, %d take %v", name, n/4, short, n, long)
		}
	}
}
