package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// socketAgain is the pause after a socket was not the server's, or refused us.
	socketAgain = 30 * time.Second
	// socketMax bounds the comparison of a socket with what answers over TCP. Where it was too short, on a
	// machine that is busy, nothing is known: it is tried again after socketSoon, then after twice that.
	socketMax  = 2 * time.Second
	socketSoon = time.Second
)

// socket is whether a shard's server, which the URL names by an address of this
// machine, is reached over its unix socket. See docs/design/replicas.md.
type socket struct {
	dirs []string
	// proved is the socket that leads to the very server that answers at the
	// URL's address; nil while that is not known.
	proved atomic.Pointer[proof]
	asking sync.Mutex   // one comparison at a time
	again  atomic.Int64 // Unix nanoseconds: not before
	// unsure is how many comparisons in a row were cut short; changed under asking.
	unsure atomic.Int32
}

// later sets when the next comparison may be, after one that proved nothing, or another server.
func (k *socket) later(cut bool) {
	pause := socketAgain
	if cut {
		pause = min(socketSoon<<min(k.unsure.Add(1)-1, 10), socketAgain)
	} else {
		k.unsure.Store(0)
	}
	k.again.Store(time.Now().Add(pause).UnixNano())
}

// proof is a socket's configuration, and what the server said behind it. Each
// conversation is asked again: while we have none, another server may take the
// socket's place, and nothing breaks that would tell us.
type proof struct {
	config *pgconn.Config
	server string
}

// through starts a conversation, over the socket if it can. connect makes one with
// a configuration.
func (s *shard) through(ctx context.Context, connect func(context.Context, *pgconn.Config) (*conn, error)) (*conn, error) {
	if p := s.socket.proved.Load(); p != nil {
		c, err := connect(ctx, p.config)
		if err == nil {
			ask, cancel := context.WithTimeout(ctx, socketMax)
			is, err := whichServer(ask, c)
			cancel()
			if err == nil && is == p.server {
				return c, nil
			}
			_ = c.Close() // with whomever it was
		}
		s.doubt()
	}
	c, err := connect(ctx, s.base)
	if err != nil {
		return nil, err
	}
	// Another conversation may compare already, socketMax at the longest, or have found the socket while this one
	// was begun. One that did not look again would stay on TCP for as long as its pool keeps it.
	s.socket.asking.Lock()
	if s.socket.proved.Load() != nil {
		s.socket.asking.Unlock()
		_ = c.Close()
		return s.through(ctx, connect)
	}
	defer s.socket.asking.Unlock()
	if !s.wantsSocket() {
		c.makeshift = s.socket.unsure.Load() > 0
		return c, nil
	}
	if same := s.sameOverSocket(ctx, c, connect); same != nil {
		_ = c.Close()
		return same, nil
	}
	if c.broken.Load() {
		if c, err = connect(ctx, s.base); err != nil {
			return nil, err
		}
	}
	c.makeshift = s.socket.unsure.Load() > 0
	return c, nil
}

// Replaceable implements engine.Makeshift: the conversation goes over TCP because a comparison was cut short, and
// the next one may find the socket.
func (c *conn) Replaceable() bool {
	k := &c.shard.socket
	return c.makeshift && (k.proved.Load() != nil || time.Now().UnixNano() >= k.again.Load())
}

// wantsSocket reports whether it is time to look for a socket that the URL allows.
func (s *shard) wantsSocket() bool {
	return len(s.socket.dirs) > 0 && s.socket.proved.Load() == nil && time.Now().UnixNano() >= s.socket.again.Load() && socketAllowed(s.base)
}

// socketAllowed reports whether the URL asks for nothing that a socket does not
// give: no TLS that must be used, one host, by TCP.
func socketAllowed(pc *pgconn.Config) bool {
	network, _ := pgconn.NetworkAddress(pc.Host, pc.Port)
	if network == "unix" || pc.KerberosSrvName != "" || pc.KerberosSpn != "" {
		return false
	}
	plain := pc.TLSConfig == nil
	for _, f := range pc.Fallbacks {
		if f.Host != pc.Host || f.Port != pc.Port {
			return false
		}
		plain = plain || f.TLSConfig == nil
	}
	return plain && pc.SSLCertMode != "require"
}

// sameOverSocket returns a conversation over a socket with the server that c is
// with, nil if there is none.
func (s *shard) sameOverSocket(ctx context.Context, c *conn, connect func(context.Context, *pgconn.Config) (*conn, error)) *conn {
	ctx, cancel := context.WithTimeout(ctx, socketMax)
	defer cancel()
	if !isLocal(ctx, s.base.Host) {
		s.socket.later(ctx.Err() != nil)
		return nil
	}
	want := ""
	for _, dir := range s.socket.dirs {
		path := filepath.Join(dir, ".s.PGSQL."+strconv.Itoa(int(s.base.Port)))
		if trustedSocket(path) != nil {
			continue
		}
		if want == "" {
			var err error
			if want, err = whichServer(ctx, c); err != nil {
				s.socket.later(true)
				return nil
			}
		}
		pc := s.base.Copy()
		pc.Host, pc.TLSConfig, pc.Fallbacks = dir, nil, nil
		over, err := connect(ctx, pc)
		if err != nil {
			continue
		}
		if is, err := whichServer(ctx, over); err == nil && is == want {
			s.socket.proved.Store(&proof{pc, want})
			s.socket.unsure.Store(0)
			return over
		}
		_ = over.Close()
	}
	s.socket.later(ctx.Err() != nil)
	return nil
}

// whichSQL tells one running server, one database there and who we are in it
// from all others. The start of the postmaster differs even between a server and
// its copy, and between servers that share a port in two network namespaces.
const (
	instanceSQL = `SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system()), pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time()),
	pg_catalog.current_setting('port'), (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())`
	whichSQL = instanceSQL + `, session_user, current_user`
)

func whichServer(ctx context.Context, c *conn) (string, error) { return c.says(ctx, whichSQL) }

// Instance implements engine.Located.
func (c *conn) Instance(ctx context.Context) (string, error) {
	is, err := c.says(ctx, instanceSQL)
	if err != nil {
		return "", c.shard.failed("locate", err)
	}
	return is, nil
}

// says is the one row of a query as one text.
func (c *conn) says(ctx context.Context, query string) (string, error) {
	res, err := c.exec(ctx, query)
	if err != nil {
		return "", err
	}
	if len(res.Rows) != 1 {
		return "", errors.New("no answer")
	}
	var b strings.Builder
	for _, v := range res.Rows[0] {
		fmt.Fprintf(&b, "%q ", v.String)
	}
	return b.String(), nil
}

// isLocal reports whether every address of a host is one of this machine's (as
// far as this network namespace goes).
func isLocal(ctx context.Context, host string) bool {
	if host == "localhost" {
		return true
	}
	var all []netip.Addr
	if a, err := netip.ParseAddr(host); err == nil {
		all = []netip.Addr{a}
	} else if all, err = net.DefaultResolver.LookupNetIP(ctx, "ip", host); err != nil {
		return false
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	mine := map[netip.Addr]bool{}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			mine[p.Addr().Unmap()] = true
		}
	}
	for _, a := range all {
		if a = a.Unmap(); !a.IsLoopback() && !mine[a.WithZone("")] {
			return false
		}
	}
	return len(all) > 0
}

// trustedSocket refuses a socket that another user of this machine could have put
// there to get the password: in a folder that everybody writes to, it must belong
// to us, to root or to the user postgres.
func trustedSocket(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("not a socket")
	}
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	if dir.Mode().Perm()&0o002 == 0 {
		return nil
	}
	owner := -1
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		owner = int(sys.Uid)
	}
	if owner == 0 || owner == os.Geteuid() {
		return nil
	}
	if u, err := user.Lookup("postgres"); err == nil && u.Uid == strconv.Itoa(owner) {
		return nil
	}
	return errors.New("another user's")
}
