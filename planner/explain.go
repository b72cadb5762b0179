package planner

import (
	"strconv"
	"strings"

	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/planner/sqltext"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// Explain returns the lines of EXPLAIN (ROUTE): the kind of plan, the shard, the
// keyspace, range and epoch that decide, the shard key expressions and the text
// that the shard gets; or the reason why the statement is refused. s is the
// explained statement, or the EXPLAIN around it. args may be nil: then a
// parameter leaves the shard open. It never fails; the error is for callers
// that treat it like Route.
func (s *Statement) Explain(snap *shardmap.Snapshot, args *Args) ([]string, error) {
	if s.Kind == ExplainRoute {
		if s.Refused != nil {
			return refusalLines(s.Refused), nil
		}
		return s.Inner.Explain(snap, args)
	}
	var out []string
	line := func(name, value string) {
		if value != "" {
			out = append(out, name+": "+value)
		}
	}
	line("plan", s.Kind.String())
	switch s.Kind {
	case OneShard:
		made := s.Fill != nil && s.keysMade()
		open := made || args == nil && s.usesParams()
		var r Route
		var err error
		if !open {
			r, err = s.Route(snap, args)
		}
		switch {
		case err != nil:
			return append(out[:0], refusalLines(sqlstate.As(err))...), nil
		case made:
			line("shard", "decided by the key that the router makes")
		case open:
			line("shard", "decided by the parameters")
		case r.Several:
			line("shard", "several")
		default:
			line("shard", r.Shard)
		}
		line("keyspace", s.Keyspace)
		if !open {
			line("range", r.Text())
			if r.Epoch != 0 {
				line("epoch", strconv.FormatUint(r.Epoch, 10))
			}
		}
		line("shard key", s.keyText())
	case Several:
		out = append(out, s.Plan.Lines(snap, args)...)
	case DefaultShard:
		line("shard", snap.State().DefaultShard)
	case AnyShard:
		line("shard", "the transaction's, else any")
	case DDLKind:
		line("operation", s.DDL.Op)
		if s.DDL.AllShards {
			names := make([]string, 0, len(snap.Shards()))
			for _, sh := range snap.Shards() {
				names = append(names, sh.Name)
			}
			line("shards", strings.Join(names, ", "))
		} else {
			line("shard", snap.State().DefaultShard)
		}
	}
	if t := s.Held(snap, args); t != nil {
		line("held", "keys of "+t.Text()+" are being moved from shard "+t.From+" to shard "+t.To+" ("+t.ID+"): the statement waits, at most cleave.hold_timeout")
	}
	var tables []string
	for _, t := range s.Tables {
		tables = append(tables, sqltext.QuoteName(t.Schema, t.Name)+" ("+string(t.Kind)+")")
	}
	line("tables", strings.Join(tables, ", "))
	switch s.Kind {
	case OneShard, DefaultShard, AnyShard, DDLKind:
		line("text", s.Text)
	}
	if s.Kind == DDLKind && s.DDL.Elsewhere != "" {
		line("text on the other shards", s.DDL.Elsewhere)
	}
	return out, nil
}

func refusalLines(e *sqlstate.Error) []string {
	out := []string{"plan: refused", "reason: " + e.Message + " (SQLSTATE " + string(e.Code) + ")"}
	if e.Hint != "" {
		out = append(out, "hint: "+e.Hint)
	}
	return out
}

// String returns the name of a kind of plan, as EXPLAIN (ROUTE) and metrics print it.
func (k Kind) String() string {
	names := [...]string{"empty", "one shard", "default shard", "any shard", "schema change", "transaction", "session setting",
		"prepare", "execute", "deallocate", "router tables", "router function", "explain", "several shards", "notifications", "block", "users"}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown"
}

func (s *Statement) usesParams() bool {
	for _, k := range s.Keys {
		for i := range k {
			if k[i].Param != 0 {
				return true
			}
		}
	}
	return false
}

// keyText prints the shard key alternatives, at most eight of them.
func (s *Statement) keyText() string {
	if len(s.Keys) == 0 {
		return "none can match"
	}
	var out []string
	for i, k := range s.Keys {
		if i == 8 {
			out = append(out, "... ("+itoa(len(s.Keys))+" in all)")
			break
		}
		parts := make([]string, len(k))
		for j := range k {
			parts[j] = k[j].String()
		}
		out = append(out, "("+strings.Join(parts, ", ")+")")
	}
	return strings.Join(out, ", ")
}

// String prints the expression as SQL.
func (e *KeyExpr) String() string {
	switch {
	case e.Array && e.Cast != 0:
		return "any of " + dollar(e.Param) + "::" + e.Cast.String() + "[]"
	case e.Array:
		return "any of " + dollar(e.Param)
	case e.Param != 0 && e.Cast != 0:
		return dollar(e.Param) + "::" + e.Cast.String()
	case e.Param != 0:
		return dollar(e.Param)
	case e.Never:
		return "NULL"
	case e.Type == keyspace.Int2, e.Type == keyspace.Int4, e.Type == keyspace.Int8:
		return strconv.FormatInt(e.Value.Int(), 10)
	}
	return sqltext.QuoteString(e.Value.Text())
}

// keysMade reports whether the router makes a value of the shard key.
func (s *Statement) keysMade() bool {
	for _, k := range s.Keys {
		for i := range k {
			if k[i].Param > s.Params {
				return true
			}
		}
	}
	return false
}
