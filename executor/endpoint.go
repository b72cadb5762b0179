package executor

import (
	"context"
	"errors"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

const (
	// probeMax bounds one question to one server, connecting included.
	probeMax = 2 * time.Second
	// probePause is the least time between two questions to one server.
	probePause = 20 * time.Millisecond
	// probeSoon is how often servers are asked while there is no primary.
	probeSoon = 100 * time.Millisecond
)

// endpoint is one server of a group. One goroutine asks it, on one connection.
type endpoint struct {
	group *group
	key   string // engine and URL
	url   string
	shard engine.Shard
	kick  chan struct{}
	stop  context.CancelFunc

	// Under group.mu.
	asked    bool // it answered, or failed to, at least once
	seen     time.Time
	err      error // why its last answer cannot be used
	standing engine.Standing
	behind   bool // it says that it is the primary, but of an old timeline
	latency  time.Duration
	// writes is the pool while it is the primary, reads while it is a replica.
	writes, reads *pool
}

// place names the server without secrets.
func (ep *endpoint) place() string { return shardmap.Redacted(ep.url) }

// watch asks the server until ctx ends.
func (ep *endpoint) watch(ctx context.Context) {
	p := prober{ep: ep}
	defer p.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-ep.kick:
		}
		began := time.Now()
		st, took, err := p.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		ep.group.report(ep, began, took, st, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(probePause):
		}
		timer.Reset(ep.group.pause())
	}
}

// pause is the time to the next question.
func (g *group) pause() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.lostAt.IsZero() && time.Since(g.lostAt) < time.Minute {
		return min(probeSoon, g.ex.limits.ProbeEvery)
	}
	return g.ex.limits.ProbeEvery
}

// prober keeps the connection on which a server is asked.
type prober struct {
	ep   *endpoint
	conn engine.Conn
}

func (p *prober) close() {
	if p.conn != nil {
		_ = p.conn.Close()
		p.conn = nil
	}
}

// ask returns what the server says and how long it took to say it.
func (p *prober) ask(ctx context.Context) (st engine.Standing, took time.Duration, err error) {
	bound, cancel := context.WithTimeout(ctx, probeMax)
	defer cancel()
	if p.conn == nil {
		if p.conn, err = p.ep.shard.Connect(bound, probeParams); err != nil {
			p.conn = nil
			return st, 0, err
		}
	}
	began := time.Now()
	st, err = standing(bound, p.conn)
	if err != nil {
		p.close()
	}
	return st, time.Since(began), err
}

var probeParams = map[string]string{"application_name": "cleave probe", "client_encoding": "UTF8"}

var errNoStanding = errors.New("the engine has no replicas")

// standing asks c; when ctx ends, the conversation is lost.
func standing(ctx context.Context, c engine.Conn) (engine.Standing, error) {
	r, ok := c.(engine.Replicated)
	if !ok {
		return engine.Standing{}, errNoStanding
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetDeadline(time.Unix(1, 0)) // a Conn that fails here fails below
	})
	st, err := r.Standing(context.Background())
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return st, err
}

// admit makes sure that a new conversation is with the server that it is meant
// for: right now, and not as of the last probe. Nothing is ever written on a
// conversation that was not admitted as the primary's. at is the server's place
// in the log.
func (ep *endpoint) admit(ctx context.Context, c engine.Conn, role engine.Role) (at engine.LSN, err error) {
	st, err := standing(ctx, c)
	g := ep.group
	g.mu.Lock()
	system, timeline := g.system, g.timeline
	g.mu.Unlock()
	var now string
	switch {
	case err != nil:
		now = "did not say who it is"
	case st.System != system:
		now = "is a stranger, another system identifier"
	case st.Role != role:
		now = "is a " + string(st.Role)
	case role == engine.Primary && st.Timeline < timeline:
		now = "is an old primary"
	default:
		return st.At, nil
	}
	_ = c.Close()
	g.look()
	e := sqlstate.New(sqlstate.CannotConnectNow, "the server %s of shard %s is not its %s now: it %s", ep.place(), g.name, role, now).OnShard(g.name)
	e.Err, e.Retry = err, sqlstate.RetrySafe
	return 0, e.WithHint("nothing was done: run it again; SELECT * FROM cleave.endpoints shows the servers")
}
