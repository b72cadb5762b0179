package cleave

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/executor/leaseuse"
	"github.com/cleavedb/cleave/internal/pipe"
	"github.com/cleavedb/cleave/internal/wire"
	"github.com/cleavedb/cleave/planner/plan"
	"github.com/cleavedb/cleave/sqlstate"
)

// Request codes and bounds of a startup message (protocol-message-formats).
const (
	codeCancel    = 80877102
	codeVersion   = 3 << 16
	startupMax    = 10000
	directMessage = 256 << 20 // largest message, bytes
	directWait    = 10 * time.Second
)

// direct is a connection to a shard that is not routed: a pipe to the program,
// a conversation with the shard, and one goroutine that relays between them. It
// looks into the messages only as far as it must: to know when all answers are
// in, which is when it listens to the program again, and whether a transaction is
// open.
type direct struct {
	o      *Owner
	nc     *pipe.Conn
	r      *wire.Reader
	pid    uint32
	secret uint32

	mu   sync.Mutex
	conn engine.Conn // nil until connected; under mu for those who end it
	stop func()      // ends a wait, nil while there is none; under mu

	ec engine.Conn // conn, for the goroutine
	// expect are the messages sent whose answers are not complete, in order, as
	// their type bytes; those without an answer are not in it.
	expect []byte
	// turn holds up the acknowledgement of a newer map while something is under way.
	turn    *leaseuse.Turn
	version uint64 // of the map when the unit began
	status  byte   // of the last ReadyForQuery
	open    bool   // messages were sent since the last Sync
	skip    bool   // after an error, until Sync
	copyIn  bool   // the shard waits for data
	out     []byte
	room    [32]byte // for expect
}

// directs are all direct connections, for cancel requests and for the end.
type directs struct {
	mu   sync.Mutex
	all  map[uint32]*direct
	next uint32
}

// end closes all of them.
func (d *directs) end() {
	d.mu.Lock()
	all := slices.Collect(maps.Values(d.all))
	d.mu.Unlock()
	for _, x := range all {
		x.cut()
	}
}

func (d *directs) add(x *direct) {
	var secret [4]byte
	_, _ = rand.Read(secret[:]) // never fails (crypto/rand)
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.next++; d.all[d.next] != nil || d.next == 0; d.next++ {
	}
	x.pid, x.secret = d.next, binary.BigEndian.Uint32(secret[:])
	d.all[x.pid] = x
}

func (d *directs) remove(x *direct) {
	d.mu.Lock()
	delete(d.all, x.pid)
	d.mu.Unlock()
}

// cancel obeys a cancel request.
func (d *directs) cancel(body []byte) {
	if len(body) != 8 {
		return
	}
	d.mu.Lock()
	x := d.all[binary.BigEndian.Uint32(body)]
	d.mu.Unlock()
	if x == nil || x.secret != binary.BigEndian.Uint32(body[4:]) {
		return
	}
	x.mu.Lock()
	ec := x.conn
	if x.stop != nil {
		x.stop()
	}
	x.mu.Unlock()
	if ec == nil {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), directWait)
	defer stop()
	// Whether or not it reaches the shard, nobody is told: as in PostgreSQL.
	_ = ec.Cancel(ctx)
}

// dial begins a direct connection.
func (o *Owner) dial(context.Context, string, string) (net.Conn, error) {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errClosed()
	}
	client, server := pipe.New()
	d := &direct{turn: c.rooms.Executor.NewTurn(), o: o, nc: server, r: wire.NewReader(server, 4<<10, directMessage), status: 'I'}
	d.expect = d.room[:0]
	// In a way that a move cannot wait for any longer: the transaction ends with it.
	d.turn.OnEnd(func(leaseuse.Hold) { c.wg.Go(d.cut) })
	d.turn.On(&unplanned)
	c.owners.direct.add(d)
	c.wg.Go(func() {
		defer c.owners.direct.remove(d)
		defer d.cut()
		defer d.turn.Close()
		d.serve()
	})
	return client, nil
}

// cut ends the connection, whatever it is at. An open transaction is rolled back.
func (d *direct) cut() {
	_ = d.nc.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stop != nil {
		d.stop()
	}
	if d.conn != nil {
		_ = d.conn.Close() // it is given up
	}
}

func (d *direct) serve() {
	params, err := d.startup()
	if err != nil || params == nil {
		return
	}
	if err := d.connect(params); err != nil {
		d.fatal(sqlstate.As(err))
		return
	}
	out, m := wire.Begin(nil, wire.Authentication)
	out = wire.End(wire.AppendInt32(out, 0), m)
	reported := d.ec.Parameters()
	for _, name := range slices.Sorted(maps.Keys(reported)) {
		out = wire.AppendParameterStatus(out, name, reported[name])
	}
	out, m = wire.Begin(out, wire.BackendKeyData)
	out = wire.End(wire.AppendInt32(wire.AppendInt32(out, int32(d.pid)), int32(d.secret)), m)
	if _, err := d.nc.Write(wire.AppendReadyForQuery(out, 'I')); err != nil {
		return
	}
	for {
		batch, err := d.r.Batch()
		if err != nil {
			return // the program has closed its end
		}
		if err := d.relay(batch); err != nil {
			var end *sqlstate.Error
			if lost := engine.Lost(err); lost != nil {
				end = lost.State(len(d.expect) > 0)
			} else if !errors.As(err, &end) {
				return // the program has left
			}
			d.fatal(end)
			return
		}
	}
}

func (d *direct) fatal(e *sqlstate.Error) {
	last := *e
	last.Severity = "FATAL"
	_ = d.nc.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = d.nc.Write(wire.AppendError(nil, &last)) // the last word; whether it arrives changes nothing
}

// startup reads the first message; nil parameters if it was a cancel request.
func (d *direct) startup() (map[string]string, error) {
	var head [8]byte
	if _, err := io.ReadFull(d.nc, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 8 || n > startupMax {
		return nil, wire.ErrMalformed
	}
	body := make([]byte, n-8)
	if _, err := io.ReadFull(d.nc, body); err != nil {
		return nil, err
	}
	switch code := binary.BigEndian.Uint32(head[4:]); {
	case code == codeCancel:
		d.o.c.owners.direct.cancel(body)
		return nil, nil
	case code>>16 != codeVersion>>16:
		return nil, wire.ErrMalformed
	}
	params := map[string]string{}
	for {
		name, rest, ok := wire.CutString(body)
		if !ok || name == "" {
			break
		}
		value, rest, _ := wire.CutString(rest)
		params[name], body = value, rest
	}
	// The shard's URL says who connects to it, and where.
	delete(params, "user")
	delete(params, "database")
	return params, nil
}

// connect opens the conversation with the shard.
func (d *direct) connect(params map[string]string) error {
	if e := d.o.refusal(); e != nil {
		return e
	}
	sh, err := d.o.c.rooms.Executor.Shard(d.o.shard)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(d.o.c.life, directWait)
	defer stop()
	ec, err := sh.Connect(ctx, params)
	if err != nil {
		var known *sqlstate.Error
		if errors.As(err, &known) {
			return known
		}
		return sqlstate.Wrap(err, sqlstate.CannotConnectNow, "shard %s cannot be reached", d.o.shard).
			OnShard(d.o.shard).WithHint("nothing was done; `cleave doctor` says which shards answer")
	}
	d.mu.Lock()
	d.conn, d.ec = ec, ec
	d.mu.Unlock()
	if d.o.c.life.Err() != nil {
		return errClosed() // cut may have come before there was something to close
	}
	return nil
}

// unplanned stands for what the program says in [leaseuse.Turn.On]: it goes to the owner of a key, whatever tables the map has.
var unplanned plan.Statement

// relay sends whole messages of the program to the shard and brings back the
// answers to them.
func (d *direct) relay(batch []byte) error {
	if d.copyIn {
		return d.data(batch)
	}
	if !d.open && !d.skip {
		d.turn.Begin() // before the map is looked at
		d.version = d.o.c.rooms.Executor.Snapshot().Version()
		if d.status == 'I' {
			if why := d.held(); why != nil {
				return d.refuse(batch, why)
			}
		}
		if why := d.o.refusal(); why != nil && d.status != 'I' {
			return why // with the connection its transaction ends
		} else if why != nil {
			return d.refuse(batch, why)
		}
	}
	var last byte
	from := 0
	send := func(to int) error {
		if to == from {
			return nil
		}
		part := batch[from:to]
		from = to
		return d.ec.Send(part)
	}
	for pos := 0; pos < len(batch); {
		f, _, ok, err := wire.Cut(batch[pos:])
		if err != nil || !ok {
			return wire.ErrMalformed
		}
		last = f.Type()
		if d.skip && last != wire.Sync && last != wire.TerminateFE {
			if err := send(pos); err != nil {
				return err
			}
			pos += len(f)
			from = pos
			continue
		}
		pos += len(f)
		switch last {
		case wire.TerminateFE:
			return io.EOF
		case wire.Sync, wire.Query, wire.FunctionF:
			d.open, d.skip = false, false
			d.expect = append(d.expect, last)
		case wire.Flush:
		case wire.CopyDataF, wire.CopyDoneF, wire.CopyFail: // of a COPY that failed
		default:
			d.open = true
			d.expect = append(d.expect, last)
		}
	}
	if err := send(len(batch)); err != nil {
		return err
	}
	if d.open && last != wire.Flush && len(d.expect) > 0 {
		// The program may go on without asking for answers; the shard must not
		// collect them until nobody can write any more.
		if err := d.ec.Send(flush); err != nil {
			return err
		}
	}
	return d.answers()
}

var flush = wire.AppendEmpty(nil, wire.Flush)

// data relays what COPY FROM STDIN reads.
func (d *direct) data(batch []byte) error {
	for pos := 0; pos < len(batch); {
		f, _, ok, err := wire.Cut(batch[pos:])
		if err != nil || !ok {
			return wire.ErrMalformed
		}
		pos += len(f)
		if t := f.Type(); t == wire.CopyDoneF || t == wire.CopyFail {
			d.copyIn = false
			if err := d.ec.Send(batch[:pos]); err != nil {
				return err
			}
			if err := d.answers(); err != nil || pos == len(batch) {
				return err
			}
			return d.relay(batch[pos:])
		}
	}
	return d.ec.Send(batch)
}

// answers relays until all expected answers are in, or the shard waits for data.
func (d *direct) answers() error {
	for !d.copyIn {
		if len(d.expect) == 0 {
			d.expect = d.room[:0]
			if !d.open && !d.skip {
				if d.status == 'I' {
					d.turn.Unuse()
				} else {
					d.turn.Use(d.o.shard, d.version)
				}
				d.turn.End()
			}
			return nil
		}
		b, err := d.ec.Receive()
		if err != nil {
			return err
		}
		read, err := d.note(b)
		if err != nil {
			return err
		}
		// The turn is asked last: after a pause in between the lease may be live
		// again, but it is another one.
		if read && (!d.o.Valid() || !d.turn.Holds()) {
			e := sqlstate.New(sqlstate.TransactionUnknown, "what shard %s owns of keyspace %s changed, or the directory was lost, while the statement ran", d.o.shard, d.o.keyspace).
				OnShard(d.o.shard).WithHint("what it read may be out of date: call ForKey again and repeat it; if it wrote, look first whether the rows are there")
			e.Keyspace = d.o.keyspace
			return e
		}
		d.o.c.rooms.Answers().Pass()
		if _, err := d.nc.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// note follows the answers in b; read says that they are about rows that no
// guard has seen.
func (d *direct) note(b []byte) (read bool, err error) {
	pop := func(what byte) {
		if len(d.expect) > 0 && d.expect[0] == what {
			d.expect = d.expect[1:]
		}
	}
	for len(b) > 0 {
		f, rest, ok, err := wire.Cut(b)
		if err != nil || !ok {
			return read, wire.ErrMalformed
		}
		b = rest
		switch f.Type() {
		case wire.DataRow, wire.CopyData:
			read = true
		case wire.ParseComplete:
			pop(wire.Parse)
		case wire.BindComplete:
			pop(wire.Bind)
		case wire.CloseComplete:
			pop(wire.Close)
		case wire.RowDescription, wire.NoData:
			pop(wire.Describe)
		case wire.CommandComplete:
			read = read || wire.Reads(f.Body())
			pop(wire.Execute)
		case wire.EmptyQueryResponse, wire.PortalSuspended:
			pop(wire.Execute)
		case wire.CopyInResponse:
			d.copyIn = true
		case wire.ErrorResponse:
			d.copyIn = false
			for len(d.expect) > 0 && d.expect[0] != wire.Sync && d.expect[0] != wire.Query && d.expect[0] != wire.FunctionF {
				d.expect = d.expect[1:]
			}
			d.skip = d.open && len(d.expect) == 0
		case wire.ReadyForQuery:
			if len(d.expect) > 0 {
				d.expect = d.expect[1:]
			}
			if len(f.Body()) == 1 {
				d.status = f.Body()[0]
			}
		}
	}
	return read, nil
}

// refuse answers messages that no shard sees.
func (d *direct) refuse(batch []byte, why *sqlstate.Error) error {
	d.out = d.out[:0]
	said := false
	for len(batch) > 0 {
		f, rest, ok, err := wire.Cut(batch)
		if err != nil || !ok {
			return wire.ErrMalformed
		}
		batch = rest
		switch t := f.Type(); t {
		case wire.TerminateFE:
			return io.EOF
		case wire.Sync, wire.Query, wire.FunctionF:
			if t != wire.Sync {
				d.out = wire.AppendError(d.out, why)
			}
			said, d.skip = false, false
			d.out = wire.AppendReadyForQuery(d.out, 'I')
		case wire.Flush:
		default:
			if !said {
				d.out = wire.AppendError(d.out, why)
			}
			said, d.skip = true, true
		}
	}
	d.turn.End()
	_, err := d.nc.Write(d.out)
	return err
}
