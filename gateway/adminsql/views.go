package adminsql

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor"
	"github.com/cleavedb/cleave/executor/txn"
	"github.com/cleavedb/cleave/ids"
	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
	"github.com/cleavedb/cleave/workflow"
)

// historyMax is how many entries cleave.history shows: the newest.
const historyMax = 1000

// Views have the rows of the schema "cleave": what this router, the map and the directory know.
type Views struct {
	Executor *executor.Executor
	// Admin answers for workflows, heat, the policy and other routers' sessions; nil: none of them are shown.
	Admin admin.API
	// Users are those of the table cleave.users; nil: it is empty.
	Users        *access.Users
	Transactions *txn.Transactions
	// Sessions are those of this router, in the order of their numbers.
	Sessions func() []admin.SessionInfo
}

// tables are the tables of the schema "cleave" with their columns (package virtual has them); the
// rows come from the map and from this router.
//
//	shards     name, engine, url (without password), labels (JSON), weight, is_default,
//	           health ("up", "down": as this router's pool found it last), reason,
//	           connections, idle
//	keyspaces  keyspace, strategy, key_types, seed, ranges, pins, tables
//	ranges     keyspace, position, low, high, shard, epoch, transit (of the range; NULL: none); a listed value
//	           has it in both low and high
//	transits   id (of the move), keyspace, part, from_shard, to_shard, owner, hold ("new", "all"; NULL: none), epoch
//	tables     schema, name, kind, keyspace, shard_key
//	pins       keyspace, key, shard, epoch
//	history    version, at, by, why, op, statement
//	routers    id, role, address, host, software, node, version (acknowledged), lag
//	           (versions behind the newest), joined, lease_left (seconds)
//	endpoints  shard, url (without password), role (what the server says of itself), serves (in which role
//	           statements go there), health, reason, timeline, lag_bytes, lag_seconds (at most), latency_ms,
//	           local_socket, connections, idle
//	sequences  schema, name, type, start, increment, min, max, block, cycle, owner, identity, taken
//	users      name, role
//	transactions  id, router (its owner's address; NULL if that is gone), age (seconds), shards (where it
//	           is prepared), decided_on (the shard that has the decision), state ("active", "in doubt")
//	workflows  id, kind, keyspace, part, from_shard, to_shard, step, paused, note (why it waits or is slow), error, rows, bytes (of this step),
//	           rows_all, bytes_all (estimates), rows_per_second, lag_bytes, eta (seconds), held_ms,
//	           kept_until (it can be reversed), parent, by, created, changed
//	heat       keyspace, part, kind (range, value, pin), shard, statements (a second), busy (under way at a
//	           time), share (of all): the load of the last minutes
//	hot_keys   keyspace, key, shard, pinned, statements, share
//	constraints  name, kind, keyspace, rule (in words), kept, broken (how)
//	policy     at, by, why, mode, policy (JSON), found (by the last look): the history, what is in force first
//	sessions   pid, username, application, client, state, shard, started, since, rows_read, bytes_read (of
//	           a statement over several shards that runs: what the shards have answered so far)
var tables = func() []engine.VirtualTable {
	out := make([]engine.VirtualTable, len(virtual.Tables))
	for i, t := range virtual.Tables {
		out[i] = engine.VirtualTable{Name: t.Name, OID: uint32(t.OID)}
		for _, c := range t.Columns {
			out[i].Columns = append(out[i].Columns, engine.VirtualColumn{Name: c.Name, OID: uint32(c.Type)})
		}
	}
	return out
}()

func text(s string) engine.Text { return engine.Text{String: s} }

// orNull is NULL for "".
func orNull(s string) engine.Text { return engine.Text{String: s, Null: s == ""} }

func number[N int | int64 | uint32 | uint64](n N) engine.Text {
	if n < 0 {
		return text(strconv.FormatInt(int64(n), 10))
	}
	return text(strconv.FormatUint(uint64(n), 10))
}

func moment(t time.Time) engine.Text { return text(t.UTC().Format("2006-01-02 15:04:05.999999+00")) }

func yes(b bool) engine.Text {
	if b {
		return text("t")
	}
	return text("f")
}

// HideURLs takes out where the shards are: users who may not change the cluster have no business there.
func HideURLs(tables []engine.VirtualTable) {
	for _, t := range tables {
		for i, c := range t.Columns {
			if c.Name != "url" {
				continue
			}
			for _, row := range t.Rows {
				row[i] = engine.Text{Null: true}
			}
		}
	}
}

// Reads are tables whose rows the directory is asked for; a set of bits.
type Reads uint16

const (
	asksHistory Reads = 1 << iota
	asksRouters
	asksSequences
	// AsksUsers is for administrators only.
	AsksUsers
	asksTransactions
	asksWorkflows
	asksHeat
	asksHotKeys
	asksPolicy
	asksSessions
)

// Asks are the tables that a statement may read. The others must
// be there when the directory is not, which is when an operator needs them.
func Asks(sql string) (reads Reads) {
	sql = strings.ToLower(sql)
	if strings.Contains(sql, `u&"`) { // a name may be written in escapes
		return asksHistory | asksRouters | asksSequences | AsksUsers | asksTransactions | asksWorkflows | asksHeat | asksHotKeys | asksPolicy | asksSessions
	}
	for i, name := range [...]string{"history", "routers", "sequences", "users", "transactions", "workflows", "heat", "hot_keys", "policy", "sessions"} {
		if strings.Contains(sql, name) {
			reads |= 1 << i
		}
	}
	return reads
}

// Tables are the tables with their rows, and warnings about what is missing. Those of reads ask the directory.
func (v *Views) Tables(ctx context.Context, reads Reads) (_ []engine.VirtualTable, warnings []string, _ error) {
	state := v.Executor.Snapshot().State()
	rows := map[string][][]engine.Text{
		"shards": v.shardRows(state), "keyspaces": keyspaceRows(state), "ranges": rangeRows(state), "transits": transitRows(v.Executor.Snapshot()), "constraints": constraintRows(v.Executor.Snapshot()),
		"tables": tableRows(state), "pins": pinRows(state), "endpoints": v.endpointRows(),
	}
	rows["sessions"], warnings = v.sessionRows(ctx, reads&asksSessions != 0)
	var err error
	if reads&asksHistory != 0 {
		if rows["history"], err = v.history(ctx, state.Version); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksRouters != 0 {
		if rows["routers"], err = v.routerRows(ctx, state.Version); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksTransactions != 0 {
		if rows["transactions"], err = v.transactionRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksWorkflows != 0 {
		if rows["workflows"], err = v.workflowRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&(asksHeat|asksHotKeys) != 0 && v.Admin != nil {
		if rows["heat"], rows["hot_keys"], err = v.heatRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksPolicy != 0 && v.Admin != nil {
		if rows["policy"], err = v.policyRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksSequences != 0 {
		if rows["sequences"], err = v.sequenceRows(ctx, state); err != nil {
			return nil, nil, err
		}
	}
	if reads&AsksUsers != 0 && v.Users != nil {
		users, err := v.Users.List(ctx)
		if err != nil {
			return nil, nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the users cannot be read")
		}
		for _, u := range users {
			rows["users"] = append(rows["users"], []engine.Text{text(u.Name), text(string(u.Role))})
		}
	}
	out := slices.Clone(tables)
	for i := range out {
		out[i].Rows = rows[out[i].Name]
	}
	return out, warnings, nil
}

func (v *Views) shardRows(state *shardmap.State) [][]engine.Text {
	health := map[string]executor.Health{}
	for _, h := range v.Executor.Health() {
		health[h.Shard] = h
	}
	var rows [][]engine.Text
	for _, sh := range state.Shards {
		h := health[sh.Name]
		up, reason := "up", ""
		if !h.Up {
			up = "down"
		}
		if h.Err != nil {
			reason = sqlstate.As(h.Err).Message
		}
		labels, err := json.Marshal(sh.Labels)
		if err != nil || sh.Labels == nil {
			labels = []byte("{}")
		}
		rows = append(rows, []engine.Text{text(sh.Name), text(sh.Engine), text(shardmap.Redacted(sh.URL)), text(string(labels)),
			text(strconv.FormatFloat(sh.Weight, 'g', -1, 64)), yes(sh.Name == state.DefaultShard), text(sh.Service.String()), orNull(sh.StateWhy()), text(up), orNull(reason), number(h.Open), number(h.Idle)})
	}
	return rows
}

func keyspaceRows(state *shardmap.State) [][]engine.Text {
	var rows [][]engine.Text
	for _, k := range state.Keyspaces {
		types := make([]string, len(k.Types))
		for i, t := range k.Types {
			types[i] = t.String()
		}
		tables := 0
		for _, t := range state.Tables {
			if t.Keyspace == k.Name {
				tables++
			}
		}
		rows = append(rows, []engine.Text{text(k.Name), text(string(k.Strategy)), text(strings.Join(types, ", ")), number(k.Seed),
			number(len(k.Ranges) + len(k.Values)), number(len(k.Pins)), number(tables)})
	}
	return rows
}

// heatRows are the rows of cleave.heat and cleave.hot_keys.
func (v *Views) heatRows(ctx context.Context) (heat, keys [][]engine.Text, err error) {
	h, err := v.Admin.Heat(ctx, admin.HeatRequest{})
	if err != nil {
		return nil, nil, err
	}
	figure := func(n float64) engine.Text { return text(strconv.FormatFloat(n, 'g', 4, 64)) }
	for _, r := range h.Ranges {
		heat = append(heat, []engine.Text{text(r.Keyspace), text(r.Part), text(r.Kind), text(r.Shard), figure(r.Statements), figure(r.Busy), figure(r.Share)})
	}
	for _, k := range h.Keys {
		keys = append(keys, []engine.Text{text(k.Keyspace), text(k.KeyText()), text(k.Shard), yes(k.Pinned), figure(k.Statements), figure(k.Share)})
	}
	return heat, keys, nil
}

func bound(b []string) engine.Text {
	if b == nil {
		return engine.Text{Null: true}
	}
	return text(strings.Join(b, ", "))
}

func rangeRows(state *shardmap.State) [][]engine.Text {
	var rows [][]engine.Text
	for _, k := range state.Keyspaces {
		for i, r := range k.Ranges {
			rows = append(rows, []engine.Text{text(k.Name), number(i), bound(r.Low), bound(r.High), text(r.Shard), number(r.Epoch), orNull(transitOf(&k, i))})
		}
		for i, v := range k.Values {
			rows = append(rows, []engine.Text{text(k.Name), number(i), bound(v.Key), bound(v.Key), text(v.Shard), number(v.Epoch), orNull(transitOfKey(&k, v.Key))})
		}
	}
	return rows
}

// transitOf is the id of the transit whose part has range i, "" if there is none.
func transitOf(k *shardmap.Keyspace, i int) string {
	for _, t := range k.Transits {
		within := t.Key == nil
		for j, r := range k.Ranges {
			// A part is made of whole ranges.
			within = within && !(t.Low != nil && slices.Equal(r.Low, t.Low) && i < j) && !(t.High != nil && slices.Equal(r.High, t.High) && i > j)
		}
		if within {
			return t.ID
		}
	}
	return ""
}

func transitOfKey(k *shardmap.Keyspace, key []string) string {
	for _, t := range k.Transits {
		if slices.Equal(t.Key, key) {
			return t.ID
		}
	}
	return ""
}

func transitRows(snap *shardmap.Snapshot) [][]engine.Text {
	var rows [][]engine.Text
	for _, k := range snap.State().Keyspaces {
		ix, _ := snap.Keyspace(k.Name)
		for i := range k.Transits {
			t := &k.Transits[i]
			owner, _ := ix.Sides(t)
			rows = append(rows, []engine.Text{text(t.ID), text(k.Name), text(t.Text()), text(t.From), text(t.To), text(owner), orNull(string(t.Hold)), number(t.Epoch)})
		}
	}
	return rows
}

func tableRows(state *shardmap.State) [][]engine.Text {
	var rows [][]engine.Text
	for _, t := range state.Tables {
		rows = append(rows, []engine.Text{text(t.Schema), text(t.Name), text(string(t.Kind)), orNull(t.Keyspace), orNull(strings.Join(t.ShardKey, ", "))})
	}
	return rows
}

func pinRows(state *shardmap.State) [][]engine.Text {
	var rows [][]engine.Text
	for _, k := range state.Keyspaces {
		for _, p := range k.Pins {
			rows = append(rows, []engine.Text{text(k.Name), text(strings.Join(p.Key, ", ")), text(p.Shard), number(p.Epoch)})
		}
	}
	return rows
}

func (v *Views) history(ctx context.Context, version uint64) ([][]engine.Text, error) {
	after := uint64(0)
	if version > historyMax {
		after = version - historyMax
	}
	entries, err := v.Executor.Directory().History(ctx, after, historyMax)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the map's history cannot be read")
	}
	var rows [][]engine.Text
	for _, e := range entries {
		rows = append(rows, []engine.Text{number(e.Version), moment(e.At), text(e.By), orNull(e.Why), text(e.Op), orNull(schema.SQL(e))})
	}
	return rows, nil
}

// sessionRows are the rows of cleave.sessions: of all routers, if they are asked. It returns warnings as well, of those that do
// not answer.
func (v *Views) sessionRows(ctx context.Context, ofAll bool) (rows [][]engine.Text, warnings []string) {
	infos := v.Sessions()
	if ofAll && v.Admin != nil && v.Executor.Lease() != nil {
		all, err := v.Admin.Sessions(ctx, admin.SessionsRequest{})
		if err != nil {
			warnings = append(warnings, "only this router's sessions are shown: "+sqlstate.As(err).Message)
		} else {
			infos = all.Sessions
			for _, r := range all.Silent {
				warnings = append(warnings, "the sessions of router "+r.Router+" are not shown: "+r.Reason)
			}
		}
	}
	orNone := func(n *int64) engine.Text {
		if n == nil {
			return engine.Text{Null: true}
		}
		return text(strconv.FormatInt(*n, 10))
	}
	for _, i := range infos {
		rows = append(rows, []engine.Text{text(strconv.FormatInt(i.PID, 10)), text(i.User), orNull(i.Application), orNull(i.Client), text(i.State), orNull(i.Shard),
			moment(i.Started), moment(i.Since), orNone(i.RowsRead), orNone(i.BytesRead), orNull(i.Router)})
	}
	return rows, warnings
}

// transactionRows are the rows of cleave.transactions.
func (v *Views) transactionRows(ctx context.Context) ([][]engine.Text, error) {
	list, err := v.Transactions.List(ctx)
	if err != nil {
		return nil, err
	}
	var rows [][]engine.Text
	for _, d := range list {
		rows = append(rows, []engine.Text{text(d.ID), orNull(d.Router), text(strconv.FormatFloat(d.Age.Seconds(), 'f', 3, 64)),
			text(strings.Join(d.Shards, ", ")), text(d.Decider), text(d.State)})
	}
	return rows, nil
}

// endpointRows are those of cleave.endpoints: the servers as this router's probes
// found them last.
func (v *Views) endpointRows() [][]engine.Text {
	null := engine.Text{Null: true}
	float := func(v float64) engine.Text { return text(strconv.FormatFloat(v, 'f', 3, 64)) }
	var rows [][]engine.Text
	for _, e := range v.Executor.Endpoints() {
		health, reason := "up", ""
		if !e.Up {
			health = "down"
		}
		if e.Err != nil {
			reason = sqlstate.As(e.Err).Message
		}
		timeline, bytes, lag, latency := null, null, null, null
		if e.Timeline > 0 {
			timeline, latency = number(e.Timeline), float(float64(e.Latency.Microseconds())/1000)
		}
		if e.LagBytes >= 0 {
			bytes = number(e.LagBytes)
		}
		if e.Lag >= 0 {
			lag = float(e.Lag.Seconds())
		}
		rows = append(rows, []engine.Text{text(e.Shard), text(shardmap.Redacted(e.URL)), orNull(string(e.Role)), orNull(string(e.Serves)),
			text(health), orNull(reason), timeline, bytes, lag, latency, yes(e.Local), number(e.Open), number(e.Idle)})
	}
	return rows
}

// policyRows are the rows of cleave.policy: the history, the policy in force first.
func (v *Views) policyRows(ctx context.Context) ([][]engine.Text, error) {
	p, err := v.Admin.Policy(ctx)
	if err != nil {
		return nil, err
	}
	row := func(at, by, why engine.Text, w *workflow.Policy, note engine.Text) []engine.Text {
		b, err := json.Marshal(w)
		if err != nil {
			b = nil // plain data
		}
		return []engine.Text{at, by, why, text(string(w.Mode)), text(string(b)), note}
	}
	null := engine.Text{Null: true}
	if len(p.History) == 0 {
		return [][]engine.Text{row(null, null, null, &p.Policy, orNull(p.Note))}, nil
	}
	var rows [][]engine.Text
	for i, l := range p.History {
		note := null
		if i == 0 {
			note = orNull(p.Note)
		}
		rows = append(rows, row(moment(l.At), text(l.By), orNull(l.Why), &l.Policy, note))
	}
	return rows, nil
}

// constraintRows are the rows of cleave.constraints.
func constraintRows(snap *shardmap.Snapshot) [][]engine.Text {
	var rows [][]engine.Text
	for _, c := range admin.ConstraintInfos(snap) {
		rows = append(rows, []engine.Text{text(c.Name), text(c.Kind), orNull(c.Keyspace), text(c.Text), yes(len(c.Broken) == 0), orNull(strings.Join(c.Broken, "; "))})
	}
	return rows
}

// workflowRows are the rows of cleave.workflows.
func (v *Views) workflowRows(ctx context.Context) ([][]engine.Text, error) {
	if v.Admin == nil {
		return nil, nil
	}
	list, err := v.Admin.Moves(ctx, "")
	if err != nil {
		return nil, err
	}
	known := func(n float64) engine.Text {
		if n < 0 {
			return engine.Text{Null: true}
		}
		return text(strconv.FormatFloat(n, 'f', 1, 64))
	}
	var rows [][]engine.Text
	for i := range list {
		w := &list[i]
		lag, until := engine.Text{Null: w.LagBytes < 0, String: strconv.FormatInt(w.LagBytes, 10)}, engine.Text{Null: true}
		if w.KeptUntil != nil {
			until = moment(w.KeptUntil.Truncate(time.Second))
		}
		rows = append(rows, []engine.Text{text(w.ID), text(w.Kind), orNull(w.Keyspace), orNull(w.Part), orNull(w.From), orNull(w.To), text(w.Step),
			yes(w.Paused), orNull(w.Note), orNull(w.Error), number(w.Rows), number(w.Bytes), number(w.RowsAll), number(w.BytesAll), known(w.RowsPerSecond),
			lag, known(w.ETA), number(w.HeldMS), until, orNull(w.Parent), text(w.By), moment(w.Created), moment(w.Changed)})
	}
	return rows, nil
}

// routerRows are the rows of cleave.routers.
func (v *Views) routerRows(ctx context.Context, version uint64) ([][]engine.Text, error) {
	members, err := v.Executor.Directory().Members(ctx)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the members of the cluster cannot be read")
	}
	var rows [][]engine.Text
	for _, m := range members {
		lag := uint64(0)
		if version > m.Acknowledged {
			lag = version - m.Acknowledged
		}
		rows = append(rows, []engine.Text{text(m.ID), text(m.Role), orNull(m.Address), text(m.Host), text(m.Software), number(uint64(m.Node)),
			number(m.Acknowledged), number(lag), moment(m.Joined), text(strconv.FormatFloat(m.Left.Seconds(), 'f', 3, 64))})
	}
	return rows, nil
}

// sequenceRows are the rows of cleave.sequences. taken is the last value that a
// router has taken from the directory; NULL if none has.
func (v *Views) sequenceRows(ctx context.Context, state *shardmap.State) ([][]engine.Text, error) {
	if len(state.Sequences) == 0 {
		return nil, nil
	}
	at := map[string]ids.State{}
	const page = 1000
	for after := ""; ; {
		list, err := v.Executor.Directory().Records(ctx, "sequence/", after, page)
		if err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the directory's records cannot be read")
		}
		for _, r := range list {
			var st ids.State
			if json.Unmarshal(r.Value, &st) == nil {
				at[r.Key] = st
			}
			after = r.Key
		}
		if len(list) < page {
			break
		}
	}
	var rows [][]engine.Text
	for i := range state.Sequences {
		q := &state.Sequences[i]
		owner, taken := "", engine.Text{Null: true}
		if q.Owner != nil {
			t := shardmap.Table{Schema: q.Owner.Schema, Name: q.Owner.Table}
			owner = t.QualifiedName() + "." + q.Owner.Column
		}
		if st, ok := at[ids.RecordKey(q)]; ok && st.Called {
			taken = number(st.Last)
		}
		rows = append(rows, []engine.Text{text(q.Schema), text(q.Name), text(q.Type), number(q.Start), number(q.Increment), number(q.Min), number(q.Max),
			number(ids.BlockSize(q)), yes(q.Cycle), orNull(owner), yes(q.Identity), taken})
	}
	return rows, nil
}
