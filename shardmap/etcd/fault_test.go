package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/cleavedb/cleave/internal/etcdtest"
	"github.com/cleavedb/cleave/internal/waitfor"
	"github.com/cleavedb/cleave/keyspace"
	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/shardmap/etcd"
	"github.com/cleavedb/cleave/shardmap/shardmaptest"
	"github.com/cleavedb/cleave/sqlstate"
)

const patience = waitfor.Max

func create(t *testing.T, d shardmap.Directory) *shardmap.Snapshot {
	t.Helper()
	s, err := d.Update(t.Context(), shardmap.Change{By: "t", Op: "test"}, shardmaptest.State(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func label(ctx context.Context, d shardmap.Directory, from *shardmap.Snapshot, id string) (*shardmap.Snapshot, error) {
	next := from.State().Clone()
	next.Shards[0].Labels = map[string]string{"n": id}
	return d.Update(ctx, shardmap.Change{Expect: from.Version(), By: "t", Op: "test", ID: id}, next)
}

func closing(t *testing.T, d shardmap.Directory) {
	t.Helper()
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// TestFaults changes the map all the time while a member of the cluster is
// killed, the leader is stopped, and both come back. Every change that was
// acknowledged is there, every other one is not, or was said to be unknown; a
// watcher sees all of it, and a lease is kept.
func TestFaults(t *testing.T) {
	t.Parallel()
	c := etcdtest.New(t, etcdtest.Options{})
	url := c.URL()
	d, watcher := open(t, url+"?timeout=10s"), open(t, url)
	defer closing(t, d)
	defer closing(t, watcher)
	snap := create(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	updates, err := watcher.Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	seen := uint64(0)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for s := range updates {
			mu.Lock()
			if s.Version() <= seen {
				t.Errorf("the watch sent version %d after %d", s.Version(), seen)
			}
			seen = s.Version()
			mu.Unlock()
		}
	})
	acknowledged := map[uint64]string{}
	unknown := map[string]bool{}
	n := 0
	var slowest time.Duration
	write := func(until func() bool) {
		t.Helper()
		for begin := time.Now(); !until() && time.Since(begin) < patience; {
			n++
			id := fmt.Sprint("change ", n)
			at := time.Now()
			made, err := label(t.Context(), d, snap, id)
			slowest = max(slowest, time.Since(at))
			switch code := sqlstate.CodeOf(err); {
			case err == nil:
				snap = made
				acknowledged[made.Version()] = id
				continue
			case code == sqlstate.TransactionUnknown:
				unknown[id] = true
			case code != sqlstate.CannotConnectNow && code != sqlstate.SerializationFailure:
				t.Fatalf("Update: %v", err)
			}
			if now, err := d.Load(t.Context()); err == nil {
				snap = now
			}
		}
	}
	some := func() func() bool {
		goal := len(acknowledged) + 15
		return func() bool { return len(acknowledged) >= goal }
	}
	write(some())
	victim := c.Leader(t)
	c.Kill(t, victim)
	write(some())
	c.Start(t, victim)
	write(some())
	leader := c.Leader(t)
	c.Pause(t, leader)
	write(some())
	c.Resume(t, leader)
	write(some())
	t.Logf("%d changes, %d of unknown outcome, the slowest took %v", len(acknowledged), len(unknown), slowest)
	if len(acknowledged) < 75 {
		t.Fatalf("only %d changes were acknowledged", len(acknowledged))
	}
	waitfor.True(t, "the watcher has the newest version", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen == snap.Version()
	})
	list, err := d.History(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range list {
		if e.Version != uint64(i+1) {
			t.Fatalf("line %d of the history is of version %d", i, e.Version)
		}
		if id, ok := acknowledged[e.Version]; ok && id != e.ID {
			t.Fatalf("version %d was acknowledged to %q and is %q's", e.Version, id, e.ID)
		} else if !ok && e.ID != "" && !unknown[e.ID] {
			t.Fatalf("%q was said not to be stored, and is version %d", e.ID, e.Version)
		}
	}
}

// TestCut cuts the network of one client: reads and changes fail within their
// time, a watch goes on by itself when it is whole again.
func TestCut(t *testing.T) {
	t.Parallel()
	c := etcdtest.Shared(t)
	url := c.URL()
	near := open(t, url)
	defer closing(t, near)
	way := c.Network(t)
	far := open(t, way.URL(url)+"?timeout=1s")
	defer closing(t, far)
	snap := create(t, near)
	updates, err := far.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-updates
	lease, leave, err := far.Join(t.Context(), shardmap.Member{ID: "far", Role: "router"})
	if err != nil {
		t.Fatal(err)
	}
	way.Cut()
	begin := time.Now()
	if _, err := far.Load(t.Context()); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow || !strings.Contains(sqlstate.As(err).Hint, "etcdctl") {
		t.Errorf("Load without a network: %v", err)
	}
	if _, err := label(t.Context(), far, snap, "far"); sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
		t.Errorf("Update without a network: %v", err)
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("both took %v", took)
	}
	waitfor.True(t, "the lease ends", func() bool { return !lease.Live() })
	if lease.Cause() == nil {
		t.Error("nothing says why the lease ended")
	}
	for n := range 5 {
		if snap, err = label(t.Context(), near, snap, fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	lease.Install(1)
	waitfor.True(t, "the directory gives the lease up", func() bool {
		list, err := near.Members(t.Context())
		return err == nil && len(list) == 0
	})
	way.Heal()
	for s := range updates {
		if s.Version() == snap.Version() {
			break
		}
	}
	waitfor.True(t, "the process has joined anew", func() bool {
		list, err := near.Members(t.Context())
		return err == nil && len(list) == 1
	})
	if lease.Live() {
		t.Error("the lease is live with an old map")
	}
	lease.Install(snap.Version())
	waitfor.True(t, "the lease is live", lease.Live)
	waitfor.True(t, "leaving works", func() bool { return leave(t.Context()) == nil })
}

// TestLostAnswer has the answers to changes not arrive, at any moment: a change
// is acknowledged, refused, or of unknown outcome and found by its ID.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	c := etcdtest.Shared(t)
	url := c.URL()
	near := open(t, url)
	defer closing(t, near)
	snap := create(t, near)
	stored, lost, unknown := 0, 0, 0
	for n := range 6 {
		way := c.Network(t)
		far := open(t, way.URL(url)+"?timeout=500ms")
		result := make(chan error, 1)
		id := fmt.Sprint("lost ", n)
		waitfor.True(t, "etcd answers in time", func() bool {
			_, err := far.Load(t.Context())
			return err == nil
		})
		go func() {
			_, err := label(t.Context(), far, snap, id)
			result <- err
		}()
		time.Sleep(time.Duration(rand.IntN(2000)) * time.Microsecond)
		way.Cut()
		err := <-result
		if n%2 == 0 {
			way.Heal()
		}
		closing(t, far)
		e, found := near.Find(t.Context(), id)
		switch {
		case err == nil && found == nil:
			stored++
		case sqlstate.CodeOf(err) == sqlstate.TransactionUnknown:
			unknown++
		case err != nil && errors.Is(found, shardmap.ErrNotFound):
			lost++
		default:
			t.Fatalf("Update says %v, Find %+v, %v", err, e, found)
		}
		if snap, err = near.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d changes stored, %d refused, %d unknown", stored, lost, unknown)
}

// TestTakenBack: a process that has seen a newer map than etcd has, since etcd was
// restored from a snapshot, serves no more, nor joins again.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	c := etcdtest.Shared(t)
	url := c.URL()
	d := open(t, url)
	defer closing(t, d)
	lease, leave, err := d.Join(t.Context(), shardmap.Member{ID: "a", Role: "router"})
	if err != nil {
		t.Fatal(err)
	}
	snap := create(t, d)
	if _, err := label(t.Context(), d, snap, "second"); err != nil {
		t.Fatal(err)
	}
	// As if the snapshot was from before the second version; leases are in it too.
	cl := c.Client(t)
	_, prefix, _ := strings.Cut(strings.TrimPrefix(url, "etcd://"), "/")
	states, err := cl.Get(t.Context(), "/"+prefix+"/map/state/", clientv3.WithLastKey()...)
	if err != nil || len(states.Kvs) != 1 {
		t.Fatalf("%v, %v", states, err)
	}
	if _, err := cl.Delete(t.Context(), string(states.Kvs[0].Key)); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "the reason is told", func() bool {
		return !lease.Live() && lease.Cause() != nil && errors.Is(lease.Cause(), shardmap.ErrTakenBack)
	})
	// Nor when another map has got the number.
	if _, err := cl.Put(t.Context(), string(states.Kvs[0].Key), "another"); err != nil {
		t.Fatal(err)
	}
	waitfor.True(t, "etcd gives the lease up", func() bool {
		list, err := d.Members(t.Context())
		return err == nil && len(list) == 0
	})
	lease.Acknowledge(2) // its renewal is refused, so that it wants to join anew
	waitfor.True(t, "it wants to join anew", func() bool { return lease.Term() > 0 })
	for end := time.Now().Add(shardmaptest.LeaseTTL); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if lease.Live() {
			t.Fatal("the process serves by a map that etcd does not have")
		}
	}
	if err := leave(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCompacted has etcd forget old revisions while a watch is cut off.
func TestCompacted(t *testing.T) {
	t.Parallel()
	c := etcdtest.Shared(t)
	url := c.URL()
	near := open(t, url)
	defer closing(t, near)
	way := c.Network(t)
	far := open(t, way.URL(url))
	defer closing(t, far)
	snap := create(t, near)
	updates, err := far.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	<-updates
	way.Cut()
	for n := range 10 {
		if snap, err = label(t.Context(), near, snap, fmt.Sprint(n)); err != nil {
			t.Fatal(err)
		}
	}
	cl := c.Client(t)
	res, err := cl.Get(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Compact(t.Context(), res.Header.Revision); err != nil {
		t.Fatal(err)
	}
	way.Heal()
	for s := range updates {
		if s.Version() == snap.Version() {
			break
		}
	}
	// All versions are there still: they are keys, not revisions of one.
	if s, err := near.At(t.Context(), 1); err != nil || s.Version() != 1 {
		t.Errorf("At(1) after compaction: %v", err)
	}
}

// TestLarge stores maps that no request can hold.
func TestLarge(t *testing.T) {
	t.Parallel()
	d := open(t, etcdtest.Shared(t).URL())
	defer closing(t, d)
	s := shardmaptest.State(t)
	k, err := shardmap.NewHashKeyspace("big", []keyspace.Type{keyspace.Text}, s.Shards, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	s.PutKeyspace(k)
	// Names that do not compress: some megabytes of them.
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60_000 {
		s.Tables = append(s.Tables, shardmap.Table{Schema: "public", Name: fmt.Sprintf("t%d_%x%x", i, random.Uint64(), random.Uint64()), Kind: shardmap.Whole})
	}
	begin := time.Now()
	snap, err := d.Update(t.Context(), shardmap.Change{By: "t", Op: "test", Statement: strings.Repeat("x", 3<<20)}, s)
	if err != nil {
		t.Fatal(err)
	}
	packed, err := shardmap.Pack(snap)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("100,000 ranges and 60,000 tables: %d bytes packed, stored in %v", len(packed), time.Since(begin))
	if len(packed) < 1_600_000 {
		t.Errorf("%d bytes fit into one request: the test tests nothing", len(packed))
	}
	other := open(t, etcdtest.Shared(t).URL())
	closing(t, other)
	got, err := d.At(t.Context(), 1)
	if err != nil || !reflect.DeepEqual(got.State(), snap.State()) {
		t.Fatalf("it comes back another (%v)", err)
	}
	list, err := d.History(t.Context(), 0, 2)
	if err != nil || len(list) != 1 || len(list[0].Statement) != 3<<20 {
		t.Fatalf("its history: %d lines, %v", len(list), err)
	}
}

// TestLogin has an etcd with TLS, certificates of clients, and passwords.
func TestLogin(t *testing.T) {
	t.Parallel()
	certs := etcdtest.NewCertificates(t, "ignored")
	c := etcdtest.New(t, etcdtest.Options{Members: 1, TLS: certs})
	cl := c.Client(t)
	ctx := t.Context()
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(cl.RoleAdd(ctx, "shop"))
	do(cl.RoleGrantPermission(ctx, "shop", "/shop/", "/shop0", 2))
	do(cl.UserAdd(ctx, "root", "r"))
	do(cl.UserGrantRole(ctx, "root", "root"))
	do(cl.UserAdd(ctx, "cleave", "p@ss/w"))
	do(cl.UserGrantRole(ctx, "cleave", "shop"))
	do(cl.AuthEnable(ctx))
	host := c.Endpoints()[0]
	tls := "?timeout=2s&cacert=" + certs.CA + "&cert=" + certs.ClientCert + "&key=" + certs.ClientKey
	url := "etcd://cleave:p%40ss%2Fw@" + host + "/shop" + tls
	d := open(t, url)
	create(t, d)
	lease, leave, err := d.Join(ctx, shardmap.Member{ID: "a", Role: "router"})
	if err != nil || !lease.Live() {
		t.Fatalf("Join: %v", err)
	}
	if list, err := d.Members(ctx); err != nil || len(list) != 1 {
		t.Fatalf("Members: %+v, %v", list, err)
	}
	l, err := d.Campaign(ctx, "x", "y")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Resign(ctx), leave(ctx), d.Close()); err != nil {
		t.Fatal(err)
	}
	closing(t, open(t, url+"&server-name=localhost"))
	for name, bad := range map[string]struct {
		url  string
		code sqlstate.Code
	}{
		"another password":   {"etcd://cleave:wrong@" + host + "/shop" + tls, sqlstate.InvalidPassword},
		"another prefix":     {"etcd://cleave:p%40ss%2Fw@" + host + "/other" + tls, sqlstate.InsufficientPrivilege},
		"no TLS":             {"etcd://cleave:p%40ss%2Fw@" + host + "/shop?timeout=1s", sqlstate.CannotConnectNow},
		"no certificate":     {"etcd://cleave:p%40ss%2Fw@" + host + "/shop?timeout=1s&cacert=" + certs.CA, sqlstate.CannotConnectNow},
		"an unknown CA":      {"etcd://cleave:p%40ss%2Fw@" + host + "/shop?timeout=1s&tls=true", sqlstate.CannotConnectNow},
		"another name":       {"etcd://cleave:p%40ss%2Fw@" + host + "/shop" + tls + "&server-name=elsewhere", sqlstate.CannotConnectNow},
		"no such file":       {"etcd://" + host + "/shop?cacert=/no/such", sqlstate.ConfigFileError},
		"no CA in the file":  {"etcd://" + host + "/shop?cacert=" + certs.ClientKey, sqlstate.ConfigFileError},
		"key without a cert": {"etcd://" + host + "/shop?key=" + certs.ClientKey, sqlstate.ConfigFileError},
	} {
		d, err := etcd.Open(ctx, bad.url, etcd.Options{})
		if err == nil {
			closing(t, d)
		}
		if sqlstate.CodeOf(err) != bad.code {
			t.Errorf("%s: %v, want %s", name, err, bad.code)
		}
		if err != nil && (strings.Contains(fmt.Sprintf("%+v", err), "p@ss") || strings.Contains(err.Error(), "p%40ss")) {
			t.Errorf("%s: the password is in the error: %v", name, err)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, good := range []string{
		"etcd://h", "etcd://h:1", "etcd://a:1,b:2,c/x/y/", "etcd://[::1]:2379/p", "etcd://u:p%40%2F@h", "etcd://h?tls=true&timeout=1s",
	} {
		if err := etcd.Check(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "etcd:h", "http://h", "etcd://", "etcd://h:x", "etcd://a,,b", "etcd://u:s3cret@", "etcd://u:s3/cret@h", "etcd://u:s3@cret@h", "etcd://u:%zz@h",
		"etcd://h?x=1", "etcd://h?timeout=1", "etcd://h?timeout=1h", "etcd://h?tls=yes", "etcd://h?cert=a", "etcd://h?tls=false&cacert=a", "etcd://h?cacert=", "etcd://::1",
	} {
		err := etcd.Check(bad)
		if sqlstate.CodeOf(err) != sqlstate.ConfigFileError {
			t.Errorf("%s: %v", bad, err)
		} else if strings.Contains(fmt.Sprint(err, sqlstate.As(err).Detail), "s3") {
			t.Errorf("%s: the error shows the password: %v, %s", bad, err, sqlstate.As(err).Detail)
		}
	}
}
