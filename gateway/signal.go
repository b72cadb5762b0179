package gateway

import (
	"context"
	"encoding/json"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/admin"
	"github.com/cleavedb/cleave/executor/several"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// PostgreSQL's functions and relations about sessions, over the router's sessions; planner/sessionview.go puts them into statements.

// terminated is what a session's client is told that pg_terminate_backend() ends, as PostgreSQL says it.
func terminated() *sqlstate.Error {
	return sqlstate.New(sqlstate.AdminShutdown, "terminating connection due to administrator command")
}

// signal cancels what a session of this router does, or ends it.
//
// Errors: 42501 if who asks may not.
func (s *Server) signal(ctx context.Context, ask admin.Signal) (admin.SignalResult, error) {
	if ask.PID < 0 || ask.PID > math.MaxUint32 {
		return admin.SignalResult{}, nil
	}
	s.mu.Lock()
	x := s.sessions[uint32(ask.PID)]
	s.mu.Unlock()
	if x == nil {
		return admin.SignalResult{}, nil
	}
	told := admin.SignalResult{Found: true, Done: true}
	if err := maySignal(ask, x); err != nil {
		return admin.SignalResult{}, err
	}
	limit, stop := context.WithTimeout(ctx, s.limits.CancelMax)
	defer stop()
	if !ask.End {
		s.metrics.Cancel()
		x.interrupts.cancel(limit)
		return told, nil
	}
	s.log.Info("a session is ended", "session", ask.PID, "user", x.start.User, "by", ask.User)
	x.interrupts.terminate(limit)
	if ask.Wait <= 0 {
		return told, nil
	}
	t := time.NewTimer(ask.Wait)
	defer t.Stop()
	select {
	case <-x.gone:
		return told, nil
	case <-ctx.Done():
		return told, userCancel(ctx.Err())
	case <-t.C:
		told.Done = false
		return told, nil
	}
}

// Answer answers what this router is asked by other members of the cluster (shardmap.Answer).
func (s *Server) Answer(ctx context.Context, op string, in []byte) ([]byte, error) {
	switch op {
	case admin.AskSessions:
		return json.Marshal(s.sessionInfos())
	case admin.AskPools:
		return json.Marshal(s.poolInfos())
	case admin.AskSignal:
		var ask admin.Signal
		if err := json.Unmarshal(in, &ask); err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.ProtocolViolation, "the question about a session cannot be read")
		}
		told, err := s.signal(ctx, ask)
		if err != nil {
			return nil, err
		}
		return json.Marshal(told)
	}
	return nil, sqlstate.New(sqlstate.UndefinedFunction, "this router knows no question %q", op).WithHint("is it of the same version? see cleave router list")
}

// sessionInfos are the sessions of this router, in the order of their numbers.
func (s *Server) sessionInfos() []admin.SessionInfo {
	all := s.list()
	slices.SortFunc(all, func(a, b *session) int { return int(int64(a.pid) - int64(b.pid)) })
	infos := make([]admin.SessionInfo, len(all))
	for i, x := range all {
		info := admin.SessionInfo{PID: int64(x.pid), User: x.start.User, State: x.interrupts.stateName(), Started: x.began, Since: time.Unix(0, x.interrupts.since.Load())}
		info.Application = x.gucs.ApplicationName()
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

func (s *Server) poolInfos() []admin.PoolInfo {
	all := []admin.PoolInfo{}
	for _, h := range s.ex.Health() {
		all = append(all, admin.PoolInfo{Shard: h.Shard, Open: h.Open, Idle: h.Idle, Reclaimed: h.Reclaimed})
	}
	return all
}

// maySignal is the rule of PostgreSQL's pg_signal_backend(): an administrator's sessions are for administrators. Others are for
// their own user, members of its role and members of pg_signal_backend as well.
func maySignal(ask admin.Signal, x *session) error {
	what, whose := "cancel superuser query", "query is being canceled"
	if ask.End {
		what, whose = "terminate superuser process", "process is being terminated"
	}
	switch {
	case ask.Role == access.Admin:
		return nil
	case x.id.Role == access.Admin:
		return sqlstate.New(sqlstate.InsufficientPrivilege, "must be a superuser to %s", what).WithHint("it takes a user with the role %s", access.Admin)
	case ask.User != x.start.User && !slices.Contains(ask.Roles, x.start.User) && !slices.Contains(ask.Roles, "pg_signal_backend"):
		return sqlstate.New(sqlstate.InsufficientPrivilege, "must be a member of the role whose %s or member of pg_signal_backend", whose).
			WithHint("it takes the same user, or one with the role %s", access.Admin)
	}
	return nil
}

// signals asks a shard whom the calls name, acts, and returns the value of the statement's text.
func (x *prepared) signals(v *plan.FillValue, args *plan.Args, values [][]byte) ([]byte, error) {
	rows, err := x.shards.askBeside(v.Asks, v.OfDefault, args, values)
	if err != nil {
		return nil, err
	}
	x.unit.effects = true
	reached := []byte{} // nil would be NULL
	own := false
	for _, row := range rows {
		if v.Column >= len(row) || row[v.Column] == nil {
			continue
		}
		key := string(row[v.Column])
		pid, timeout, _ := strings.Cut(strings.Trim(key, "|"), " ")
		n, err := strconv.ParseInt(pid, 10, 32)
		if err != nil {
			return nil, sqlstate.Wrap(err, sqlstate.InternalError, "%q is no session's number", pid)
		}
		wait := int64(0)
		if timeout != "" {
			if wait, err = strconv.ParseInt(timeout, 10, 64); err != nil {
				return nil, sqlstate.Wrap(err, sqlstate.InternalError, "%q is no time", timeout)
			}
		}
		done, err := x.signalOne(v.Source == plan.SourceTerminate, n, wait)
		if err != nil {
			return nil, err
		}
		own = own || x.interrupts.endsHere()
		if done {
			reached = append(reached, key...)
		}
	}
	if own {
		return nil, terminated()
	}
	return reached, nil
}

// signalOne carries out one call. wait is in milliseconds.
func (x *prepared) signalOne(end bool, pid, wait int64) (bool, error) {
	if wait < 0 {
		return false, sqlstate.New(sqlstate.NumericOutOfRange, "\"timeout\" must not be negative")
	}
	if pid == int64(x.pid) {
		if !end {
			return false, sqlstate.New(sqlstate.QueryCanceled, "canceling statement due to user request")
		}
		x.interrupts.terminating.Store(true)
		return true, nil
	}
	ask := admin.Signal{PID: pid, End: end, User: x.start.User, Role: x.id.Role}
	// A longer wait is as good as none that ends: nobody counts centuries.
	ask.Wait = time.Duration(min(wait, 1<<40)) * time.Millisecond
	if x.id.Login != nil {
		rows, err := x.shards.askBeside("SELECT rolname FROM pg_catalog.pg_roles WHERE pg_catalog.pg_has_role(oid, 'USAGE')", true, nil, nil)
		if err != nil {
			return false, err
		}
		for _, row := range rows {
			ask.Roles = append(ask.Roles, string(row[0]))
		}
	}
	ctx, done := x.interrupts.waiting()
	defer done()
	told, err := x.srv.signal(ctx, ask)
	if err == nil && !told.Found && x.srv.ex.Lease() != nil && pid > 0 && pid>>admin.NodeBits != int64(x.srv.node()) {
		told, err = admin.SendSignal(ctx, x.srv.ex.Directory(), ask)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return false, userCancel(ctx.Err())
	case err != nil:
		return false, err
	case !told.Found:
		x.w.warning("01000", "PID "+strconv.FormatInt(pid, 10)+" is not a PostgreSQL backend process")
	case !told.Done:
		x.w.warning("01000", "backend with PID "+strconv.FormatInt(pid, 10)+" did not terminate within "+strconv.FormatInt(wait, 10)+" milliseconds")
	}
	return told.Done, nil
}

// sessionJSON returns the rows of one of PostgreSQL's relations about sessions.
func (x *prepared) sessionJSON(source string) ([]byte, error) {
	var rows []map[string]any
	switch source {
	case "pg_prepared_statements":
		var err error
		if rows, err = x.preparedRows(); err != nil {
			return nil, err
		}
	default:
		all := x.srv.list()
		slices.SortFunc(all, func(a, b *session) int { return int(int64(a.pid) - int64(b.pid)) })
		for _, s := range all {
			rows = append(rows, s.activity(source))
		}
	}
	if rows == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(rows)
}

// activity is the session's row. What the router does not know of it is NULL.
func (x *session) activity(source string) map[string]any {
	row := map[string]any{"pid": x.pid}
	switch source {
	case "pg_stat_ssl":
		row["ssl"] = x.start.Channel.TLS
		if x.start.Channel.Name != "" {
			row["client_dn"] = "/CN=" + x.start.Channel.Name
		}
		return row
	case "pg_stat_gssapi":
		row["gss_authenticated"], row["encrypted"] = false, false
		return row
	}
	const stamp = "2006-01-02 15:04:05.999999+00"
	row["datname"], row["usename"], row["backend_type"] = Database, x.start.User, "client backend"
	row["backend_start"], row["state_change"] = x.began.UTC().Format(stamp), time.Unix(0, x.interrupts.since.Load()).UTC().Format(stamp)
	row["state"] = x.interrupts.stateName()
	row["application_name"] = x.gucs.ApplicationName()
	switch a := x.start.Remote.(type) {
	case *net.TCPAddr:
		row["client_addr"], row["client_port"] = a.IP.String(), a.Port
	default:
		row["client_port"] = -1
	}
	return row
}

// ofSession is what one of plan.SessionCalls gives a session with this number and connection.
func ofSession(call string, pid uint32, client, server net.Addr) []byte {
	end := client
	switch call {
	case plan.SourcePID:
		return strconv.AppendUint(nil, uint64(pid), 10)
	case plan.SourceServerAddr, plan.SourceServerPort:
		end = server
	}
	at, ok := end.(*net.TCPAddr)
	switch {
	case !ok:
		return nil
	case call == plan.SourceClientAddr, call == plan.SourceServerAddr:
		return []byte(at.IP.String())
	}
	return strconv.AppendInt(nil, int64(at.Port), 10)
}

// preparedRows are the session's prepared statements, those that a shard has judged.
func (x *prepared) preparedRows() ([]map[string]any, error) {
	names := make([]string, 0, x.statements.Len())
	for name := range x.statements.Names() {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var rows []map[string]any
	for _, name := range names {
		s, _ := x.statements.Find([]byte(name))
		types, err := x.shards.typesBeside(s)
		if err != nil {
			return nil, err
		}
		list := make([]string, len(types))
		for i, oid := range types {
			list[i] = strconv.FormatUint(uint64(oid), 10)
		}
		text := s.client()
		if s.source != "" {
			text = s.source
		}
		rows = append(rows, map[string]any{"name": name, "statement": text, "prepare_time": s.made.UTC().Format("2006-01-02 15:04:05.999999+00"),
			"parameter_types": list, "from_sql": s.source != ""})
	}
	return rows, nil
}

const pidBits = admin.NodeBits

// node is the router's number in the cluster; 0 where there is no lease.
func (s *Server) node() uint32 {
	if s.ex == nil || s.ex.Lease() == nil {
		return 0
	}
	return uint32(s.ex.Lease().Node())
}
