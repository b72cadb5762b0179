package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/cleavedb/cleave/access"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// NodeBits is how far the node number of a session's router is shifted in the session's number. So no two routers of a cluster
// give the same one.
const NodeBits = 21

// What members are asked about their sessions (shardmap.Ask).
const (
	AskSessions = "sessions" // in: nothing; out: []SessionInfo
	AskSignal   = "signal"   // in: Signal; out: SignalResult
)

// SessionInfo is a session of a client.
type SessionInfo struct {
	PID         int64     `json:"pid"`
	Router      string    `json:"router"` // its address; a program's id
	User        string    `json:"username"`
	Application string    `json:"application,omitempty"`
	Client      string    `json:"client,omitempty"` // its address
	State       string    `json:"state"`            // in pg_stat_activity's words
	Shard       string    `json:"shard,omitempty"`  // where its statement or transaction is
	Started     time.Time `json:"started"`
	Since       time.Time `json:"since"` // of the state
	// RowsRead and BytesRead are what a statement over several shards has read of them so far.
	RowsRead  *int64 `json:"rows_read,omitempty"`
	BytesRead *int64 `json:"bytes_read,omitempty"`
}

// SessionsRequest asks for sessions.
type SessionsRequest struct {
	Router string `json:"router,omitempty"` // address, id or node number; "": all
}

// SessionsInfo are sessions, and the routers that did not tell theirs.
type SessionsInfo struct {
	Sessions []SessionInfo  `json:"sessions"`
	Silent   []SilentRouter `json:"silent"`
}

// SilentRouter is a member that did not answer.
type SilentRouter struct {
	Router string `json:"router"`
	Reason string `json:"reason"`
}

// SessionRequest cancels what a session runs, or ends it.
type SessionRequest struct {
	Meta
	PID int64 `json:"pid"`
	// Wait is how long a session that is to end is waited for, seconds; 0: not at all.
	Wait float64 `json:"wait,omitempty"`
}

// SessionResult says what became of a session.
type SessionResult struct {
	Session SessionInfo `json:"session"`
	// Done: it was told, and has ended if that was to be waited for. false with DryRun.
	Done bool `json:"done"`
}

// Signal is what a session is told for another one's user.
type Signal struct {
	PID  int64         `json:"pid"`
	End  bool          `json:"end"` // end it; else cancel its statement
	Wait time.Duration `json:"wait"`
	// User says who asks; Role is its role, and Roles are those of the shards that a passed-through user is a member of.
	User  string      `json:"user"`
	Role  access.Role `json:"role"`
	Roles []string    `json:"roles,omitempty"`
}

// SignalResult is what became of a signal.
type SignalResult struct {
	Found bool `json:"found"` // there was such a session
	Done  bool `json:"done"`  // it was told, and has ended if that was to be waited for
}

// SendSignal gives the signal to the session of another router. It is not found if no member has it.
func SendSignal(ctx context.Context, dir shardmap.Directory, s Signal) (res SignalResult, err error) {
	member, err := routerOf(ctx, dir, s.PID)
	if err != nil || member == "" {
		return res, err
	}
	err = shardmap.Ask(ctx, dir, member, AskSignal, s, &res, s.Wait)
	return res, err
}

// routerOf returns the id of the member that gave a session its number, "" if there is none.
func routerOf(ctx context.Context, dir shardmap.Directory, pid int64) (string, error) {
	members, err := dir.Members(ctx)
	if err != nil {
		return "", sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the members of the cluster cannot be read")
	}
	for _, m := range members {
		if pid>>NodeBits == int64(m.Node) && m.Role != "coordinator" {
			return m.ID, nil
		}
	}
	return "", nil
}

// routerName is how people know a member.
func routerName(m *shardmap.MemberState) string {
	if m.Address != "" {
		return m.Address
	}
	return m.ID
}

// sessions are the operations on clients' sessions, which each router knows of its own.
type sessions struct {
	*backend
	turn inTurn[*SessionsInfo]
}

// Sessions lists the sessions of one router, or of all. Of all it is no error if some do not answer: they are named.
//
// Errors: 42704 for a router that there is not; 57P03 if it does not answer.
func (o *sessions) Sessions(ctx context.Context, req SessionsRequest) (*SessionsInfo, error) {
	if req.Router != "" {
		return o.askSessions(ctx, req)
	}
	return o.turn.do(ctx, func(ctx context.Context) (*SessionsInfo, error) { return o.askSessions(ctx, req) })
}

// inTurn has something read once at a time, however many want it: reading asks every member by records in the directory, and each user may.
// Who comes while it is read gets what is read next, with those who came meanwhile, so never anything of before its call.
type inTurn[T any] struct {
	mu   sync.Mutex
	busy chan struct{} // holds one while it is read
	next *reading[T]
}

// reading is one that has not begun, is under way, or has ended.
type reading[T any] struct {
	ended chan struct{}
	value T
	err   error
}

func (r *inTurn[T]) do(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	for {
		r.mu.Lock()
		if r.busy == nil {
			r.busy = make(chan struct{}, 1)
		}
		mine := r.next == nil
		if mine {
			r.next = &reading[T]{ended: make(chan struct{})}
		}
		n := r.next
		r.mu.Unlock()
		if mine {
			return r.read(ctx, n, read)
		}
		select {
		case <-n.ended:
		case <-ctx.Done():
			return n.value, ctx.Err()
		}
		if ctx.Err() != nil || !errors.Is(n.err, context.Canceled) && !errors.Is(n.err, context.DeadlineExceeded) {
			return n.value, n.err
		} // who read it has left
	}
}

// read reads when its turn comes.
func (r *inTurn[T]) read(ctx context.Context, n *reading[T], read func(context.Context) (T, error)) (T, error) {
	defer close(n.ended)
	var err error
	select {
	case r.busy <- struct{}{}:
	case <-ctx.Done():
		err = ctx.Err()
	}
	r.mu.Lock()
	r.next = nil
	r.mu.Unlock()
	if err != nil {
		n.err = err
		return n.value, err
	}
	defer func() { <-r.busy }()
	n.value, n.err = read(ctx)
	if e := ctx.Err(); e != nil {
		n.err = e
	}
	return n.value, n.err
}

// askSessions is Sessions, which asks now.
func (o *sessions) askSessions(ctx context.Context, req SessionsRequest) (*SessionsInfo, error) {
	info := &SessionsInfo{Sessions: []SessionInfo{}, Silent: []SilentRouter{}}
	members, err := o.opts.Directory.Members(ctx)
	if err != nil {
		return nil, sqlstate.Wrap(err, sqlstate.CannotConnectNow, "the members of the cluster cannot be read")
	}
	members = slices.DeleteFunc(members, func(m shardmap.MemberState) bool { return m.Role == "coordinator" })
	if req.Router != "" {
		members = slices.DeleteFunc(members, func(m shardmap.MemberState) bool {
			return m.Address != req.Router && m.ID != req.Router && strconv.Itoa(int(m.Node)) != req.Router
		})
		if len(members) == 0 {
			return nil, sqlstate.New(sqlstate.UndefinedObject, "there is no router %q", req.Router).WithHint("the routers: cleave router list")
		}
	}
	lists, errs := make([][]SessionInfo, len(members)), make([]error, len(members))
	var at sync.WaitGroup
	slots := make(chan struct{}, probesAtOnce)
	for i := range members {
		slots <- struct{}{}
		at.Go(func() {
			defer func() { <-slots }()
			errs[i] = o.askMember(ctx, members[i].ID, AskSessions, struct{}{}, &lists[i], 0)
		})
	}
	at.Wait()
	for i := range members {
		name := routerName(&members[i])
		if errs[i] != nil {
			if req.Router != "" {
				return nil, errs[i]
			}
			info.Silent = append(info.Silent, SilentRouter{Router: name, Reason: sqlstate.As(errs[i]).Message})
		}
		for _, s := range lists[i] {
			s.Router = name
			info.Sessions = append(info.Sessions, s)
		}
	}
	return info, nil
}

// askMember asks a member, which may be this process.
func (o *sessions) askMember(ctx context.Context, member, op string, in, out any, wait time.Duration) error {
	if o.opts.Answer == nil || member != o.opts.Member {
		return shardmap.Ask(ctx, o.opts.Directory, member, op, in, out, wait)
	}
	b, err := json.Marshal(in)
	if err == nil {
		b, err = o.opts.Answer(ctx, op, b)
	}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	return err
}

// CancelSession cancels what a session runs. The session goes on.
//
// Errors: 42704 for a session that there is not.
func (o *sessions) CancelSession(ctx context.Context, req SessionRequest) (*SessionResult, error) {
	return o.signal(ctx, req, false)
}

// TerminateSession ends a session; its client gets 57P01. Its open transaction is rolled back.
//
// Errors: 42704 for a session that there is not.
func (o *sessions) TerminateSession(ctx context.Context, req SessionRequest) (*SessionResult, error) {
	return o.signal(ctx, req, true)
}

func (o *sessions) signal(ctx context.Context, req SessionRequest, end bool) (*SessionResult, error) {
	if req.Wait < 0 || req.Wait > sessionWaitMax.Seconds() {
		return nil, sqlstate.New(sqlstate.InvalidParameterValue, "the wait for a session's end must be 0 to %v", sessionWaitMax)
	}
	none := sqlstate.New(sqlstate.UndefinedObject, "there is no session %d", req.PID).WithHint("the sessions: cleave sessions")
	if req.PID <= 0 {
		return nil, none
	}
	member, err := routerOf(ctx, o.opts.Directory, req.PID)
	if err != nil {
		return nil, err
	}
	if member == "" {
		return nil, none
	}
	info, err := o.Sessions(ctx, SessionsRequest{Router: member})
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(info.Sessions, func(s SessionInfo) bool { return s.PID == req.PID })
	if at < 0 {
		return nil, none
	}
	res := &SessionResult{Session: info.Sessions[at]}
	if req.DryRun {
		return res, nil
	}
	ask := Signal{PID: req.PID, End: end, Wait: time.Duration(req.Wait * float64(time.Second)), User: req.By, Role: access.Admin}
	var told SignalResult
	if err := o.askMember(ctx, member, AskSignal, ask, &told, ask.Wait); err != nil {
		return nil, err
	}
	if !told.Found {
		return nil, none
	}
	res.Done = told.Done
	return res, nil
}

// sessionWaitMax bounds the wait for a session's end.
const sessionWaitMax = time.Minute

// AskPools asks a member about its connections to the shards (shardmap.Ask). in: nothing; out: []PoolInfo.
const AskPools = "pools"

// poolsWait bounds the question: a router that is not there is no business of its pools.
const poolsWait = 3 * time.Second

// PoolInfo is a router's pool of connections to a shard.
type PoolInfo struct {
	Shard string `json:"shard"`
	Open  int    `json:"open"`
	Idle  int    `json:"idle"`
	// Reclaimed counts connections that sessions had lost, since the router's start.
	Reclaimed int64 `json:"reclaimed"`
}

// lostConnections names the routers whose sessions have lost connections: a defect of the router, which it makes good.
func (o *sessions) lostConnections(ctx context.Context) []Finding {
	members, err := o.opts.Directory.Members(ctx)
	if err != nil {
		return nil // the directory's finding
	}
	limit, stop := context.WithTimeout(ctx, poolsWait)
	defer stop()
	found := make([][]Finding, len(members))
	atOnce(len(members), probesAtOnce, func(i int) {
		var pools []PoolInfo
		if members[i].Role == "coordinator" || o.askMember(limit, members[i].ID, AskPools, struct{}{}, &pools, 0) != nil {
			return // an older one does not know the question
		}
		for _, p := range pools {
			if p.Reclaimed > 0 {
				found[i] = append(found[i], Finding{Level: LevelWarning, Shard: p.Shard,
					What: fmt.Sprintf("sessions of router %s have lost %d connections to shard %s since its start; they were taken back", routerName(&members[i]), p.Reclaimed, p.Shard),
					Next: "please report it with that router's log lines \"a connection was taken back\""})
			}
		}
	})
	var out []Finding
	for _, list := range found {
		out = append(out, list...)
	}
	return out
}
