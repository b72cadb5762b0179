package gateway

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
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/internal/virtual"
	"github.com/cleavedb/cleave/planner"
	"github.com/cleavedb/cleave/schema"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// virtualName stands for the virtual database where a shard's name is expected.
const virtualName = "(router)"

// historyMax is how many entries cleave.history shows: the newest.
const historyMax = 1000

const (
	oidBool = virtual.Bool
	oidText = virtual.Text
)

// VirtualTables are the tables of the schema "cleave" with their columns (package virtual has them); the
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
var VirtualTables = func() []engine.VirtualTable {
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

// reachVirtual makes pipe.Conn a conversation with a fresh virtual database.
func (x *prepared) reachVirtual(st *planner.Statement) error {
	if x.srv.openVirtual == nil {
		return sqlstate.Refusal("CLV-1222", `the schema "cleave" is not available in this router`).
			WithHint("ask the admin API, as `cleave map show` does; a program built with the tag cleave_nosqlite does not have it")
	}
	reads := asksDirectory(st.Text)
	if x.pipe.virtual() && reads&^x.virtualReads == 0 {
		return nil // within one unit the tables stay as they were
	}
	if x.pipe.Conn != nil {
		if x.tx.state == txNone && x.pipe.wrote {
			return sqlstate.Refusal("CLV-1223", `reading the schema "cleave" after a write before the same Sync is not supported`).
				WithHint("Sync before it")
		}
		if err := x.leave(); err != nil {
			return err
		}
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	if x.id.Role != access.Admin {
		reads &^= asksUsers
	}
	tables, warnings, err := x.srv.virtualTables(ctx, reads)
	if err != nil {
		return userCancel(err)
	}
	for _, w := range warnings {
		x.w.warning("01000", w)
	}
	if x.id.Role != access.Admin {
		hideURLs(tables)
	}
	c, err := x.srv.openVirtual("cleave", tables)
	if err != nil {
		return sqlstate.Wrap(err, sqlstate.InternalError, "the schema \"cleave\" cannot be read")
	}
	x.pipe.Conn, x.virtualReads = executor.NewConn(virtualName, c), reads
	return nil
}

// hideURLs takes out where the shards are: users who may not change the cluster have no business there.
func hideURLs(tables []engine.VirtualTable) {
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

// directoryTables are tables whose rows the directory is asked for; a set of bits.
type directoryTables uint16

const (
	asksHistory directoryTables = 1 << iota
	asksRouters
	asksSequences
	asksUsers
	asksTransactions
	asksWorkflows
	asksHeat
	asksHotKeys
	asksPolicy
	asksSessions
)

// asksDirectory returns the tables that a statement may read. The others must
// be there when the directory is not, which is when an operator needs them.
func asksDirectory(sql string) (reads directoryTables) {
	sql = strings.ToLower(sql)
	if strings.Contains(sql, `u&"`) { // a name may be written in escapes
		return asksHistory | asksRouters | asksSequences | asksUsers | asksTransactions | asksWorkflows | asksHeat | asksHotKeys | asksPolicy | asksSessions
	}
	for i, name := range [...]string{"history", "routers", "sequences", "users", "transactions", "workflows", "heat", "hot_keys", "policy", "sessions"} {
		if strings.Contains(sql, name) {
			reads |= 1 << i
		}
	}
	return reads
}

func (s *Server) virtualTables(ctx context.Context, reads directoryTables) (_ []engine.VirtualTable, warnings []string, _ error) {
	state := s.ex.Snapshot().State()
	rows := map[string][][]engine.Text{
		"shards": s.shardRows(state), "keyspaces": keyspaceRows(state), "ranges": rangeRows(state), "transits": transitRows(s.ex.Snapshot()), "constraints": constraintRows(s.ex.Snapshot()),
		"tables": tableRows(state), "pins": pinRows(state), "endpoints": s.endpointRows(),
	}
	rows["sessions"], warnings = s.sessionRows(ctx, reads&asksSessions != 0)
	var err error
	if reads&asksHistory != 0 {
		if rows["history"], err = s.history(ctx, state.Version); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksRouters != 0 {
		if rows["routers"], err = s.routerRows(ctx, state.Version); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksTransactions != 0 {
		if rows["transactions"], err = s.transactionRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksWorkflows != 0 {
		if rows["workflows"], err = s.workflowRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&(asksHeat|asksHotKeys) != 0 && s.admin != nil {
		if rows["heat"], rows["hot_keys"], err = s.heatRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksPolicy != 0 && s.admin != nil {
		if rows["policy"], err = s.policyRows(ctx); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksSequences != 0 {
		if rows["sequences"], err = s.sequenceRows(ctx, state); err != nil {
			return nil, nil, err
		}
	}
	if reads&asksUsers != 0 && s.users != nil {
		users, err := s.users.List(ctx)
		if err != nil {
			return nil, nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the users cannot be read")
		}
		for _, u := range users {
			rows["users"] = append(rows["users"], []engine.Text{text(u.Name), text(string(u.Role))})
		}
	}
	tables := slices.Clone(VirtualTables)
	for i := range tables {
		tables[i].Rows = rows[tables[i].Name]
	}
	return tables, warnings, nil
}

func (s *Server) shardRows(state *shardmap.State) [][]engine.Text {
	health := map[string]executor.Health{}
	for _, h := range s.ex.Health() {
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
func (s *Server) heatRows(ctx context.Context) (heat, keys [][]engine.Text, err error) {
	h, err := s.admin.Heat(ctx, admin.HeatRequest{})
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

func (s *Server) history(ctx context.Context, version uint64) ([][]engine.Text, error) {
	after := uint64(0)
	if version > historyMax {
		after = version - historyMax
	}
	entries, err := s.ex.Directory().History(ctx, after, historyMax)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the map's history cannot be read")
	}
	var rows [][]engine.Text
	for _, e := range entries {
		rows = append(rows, []engine.Text{number(e.Version), moment(e.At), text(e.By), orNull(e.Why), text(e.Op), orNull(schema.SQL(e))})
	}
	return rows, nil
}

// sessionInfos are the sessions of this router, in the order of their numbers.
func (s *Server) sessionInfos() []admin.SessionInfo {
	all := s.list()
	slices.SortFunc(all, func(a, b *session) int { return int(int64(a.pid) - int64(b.pid)) })
	infos := make([]admin.SessionInfo, len(all))
	for i, x := range all {
		info := admin.SessionInfo{PID: int64(x.pid), User: x.start.User, State: x.interrupts.stateName(), Started: x.began, Since: time.Unix(0, x.interrupts.since.Load())}
		if p := x.gucs.application.Load(); p != nil {
			info.Application = *p
		}
		if p := x.shards.at.Load(); p != nil {
			info.Shard = *p
		}
		if x.start.Remote != nil {
			info.Client = x.start.Remote.String()
		}
		if p := x.progress.Load(); p != nil && info.State == "active" && info.Shard == several.Name {
			rows, size := p.Read()
			info.RowsRead, info.BytesRead = &rows, &size
		}
		infos[i] = info
	}
	return infos
}

// sessionRows are the rows of cleave.sessions: of all routers, if they are asked. It returns warnings as well, of those that do
// not answer.
func (s *Server) sessionRows(ctx context.Context, ofAll bool) (rows [][]engine.Text, warnings []string) {
	infos := s.sessionInfos()
	if ofAll && s.admin != nil && s.ex.Lease() != nil {
		all, err := s.admin.Sessions(ctx, admin.SessionsRequest{})
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
func (s *Server) transactionRows(ctx context.Context) ([][]engine.Text, error) {
	list, err := s.several.Transactions().List(ctx)
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
func (s *Server) endpointRows() [][]engine.Text {
	null := engine.Text{Null: true}
	float := func(v float64) engine.Text { return text(strconv.FormatFloat(v, 'f', 3, 64)) }
	var rows [][]engine.Text
	for _, e := range s.ex.Endpoints() {
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
