package crash

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/cleavedb/cleave/internal/localpg"
)

// victim is what a fault is done to.
type victim string

const (
	coordinatorProcess victim = "coordinator" // the process that leads, also if it is a router
	routerProcess      victim = "router"      // one that does not lead
	sourceServer       victim = "source"
	targetServer       victim = "target"
	directory          victim = "directory"
)

// fault is what is done to it.
type fault string

const (
	killed  fault = "killed"  // SIGKILL, and started again
	paused  fault = "paused"  // SIGSTOP for longer than a lease, then SIGCONT
	cut     fault = "cut"     // from the directory, for longer than a lease
	damaged fault = "damaged" // the first is killed, the second paused
)

// choices are the victims and faults of an engine.
func choices(engine string) (list []choice) {
	all := []victim{coordinatorProcess, routerProcess, sourceServer, targetServer, directory}
	if engine == "sqlite" { // the files are in the processes
		all = all[:2]
		// Nobody is cut off from a file, but it can be locked: then nobody can write it.
		list = append(list, choice{cut, []victim{directory}})
	}
	for i, a := range all {
		sets := [][]victim{{a}}
		for _, b := range all[i+1:] {
			sets = append(sets, []victim{a, b})
		}
		for _, set := range sets {
			list = append(list, choice{killed, set}, choice{paused, set})
			if engine == "postgres" && (a == coordinatorProcess && (len(set) == 1 || set[1] == routerProcess) || a == routerProcess && len(set) == 1) {
				list = append(list, choice{cut, set})
			}
			if len(set) == 2 && set[0] == coordinatorProcess {
				list = append(list, choice{damaged, set})
			}
		}
	}
	return list
}

type choice struct {
	fault   fault
	victims []victim
}

// hit does the fault to the victims, keeps it up for a while and takes it back. It calls
// done when all have been hit. source and target are numbers of servers.
func (l *lane) hit(c choice, r *rand.Rand, leader, source, target int, done func()) {
	l.t.Helper()
	long := leaseTTL*5/4 + time.Duration(r.IntN(1250))*time.Millisecond
	hold := long
	if c.fault == killed {
		hold = []time.Duration{0, 150 * time.Millisecond, 600 * time.Millisecond, 2 * time.Second}[r.IntN(4)]
	}
	var heal []func() // in this order: the directory, servers, processes
	var processes []func()
	for i, v := range c.victims {
		f := c.fault
		if f == damaged {
			f = []fault{killed, paused}[i]
		}
		switch v {
		case coordinatorProcess, routerProcess:
			p := l.victim(v, leader, r)
			processes = append(processes, l.hitProcess(p, f))
		case sourceServer, targetServer:
			s := l.servers[source]
			if v == targetServer {
				s = l.servers[target]
			}
			heal = append(heal, l.hitServer(s, f))
		case directory:
			heal = append([]func(){l.hitDirectory(f, r)}, heal...)
		}
	}
	done()
	time.Sleep(hold)
	for _, h := range heal {
		h()
	}
	var wait sync.WaitGroup
	for _, h := range processes {
		wait.Go(h)
	}
	wait.Wait()
}

// victim is the process that leads, or a router that does not.
func (l *lane) victim(v victim, leader int, r *rand.Rand) *process {
	first := r.IntN(len(l.routers))
	for i := range l.routers {
		if p := l.routers[(first+i)%len(l.routers)].process; v == routerProcess && p.pid() != leader {
			return p
		}
	}
	for _, p := range l.processes {
		if p.pid() == leader {
			return p
		}
	}
	return l.processes[0] // it has just lost the lead
}

func (l *lane) hitProcess(p *process, f fault) (heal func()) {
	switch f {
	case killed:
		p.kill()
		return func() {
			if err := p.start(); err != nil {
				l.t.Error(err)
			}
		}
	case paused:
		pid := p.pid()
		signalTree(l.t, pid, syscall.SIGSTOP)
		return func() { signalTree(l.t, pid, syscall.SIGCONT) }
	}
	p.way.Cut()
	return p.way.Heal
}

func (l *lane) hitServer(s *server, f fault) (heal func()) {
	if f == paused {
		pid := s.PID()
		signalTree(l.t, pid, syscall.SIGSTOP)
		return func() { signalTree(l.t, pid, syscall.SIGCONT) }
	}
	s.Kill()
	return func() {
		ctx, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		next, err := localpg.Start(ctx, s.again)
		if err != nil {
			l.t.Fatal(err)
		}
		s.Server = next
	}
}

// hitDirectory takes most members of etcd away, or all; or keeps a file's lock.
func (l *lane) hitDirectory(f fault, r *rand.Rand) (heal func()) {
	if l.etcd == nil {
		conn, err := sqlite.OpenConn(filepath.Join(l.folder, "directory.db"), sqlite.OpenReadWrite)
		if err != nil {
			l.t.Fatal(err)
		}
		conn.SetBusyTimeout(patience)
		if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
			l.t.Fatal(err)
		}
		return func() { _ = conn.Close() } // rolls back
	}
	members := []int{0, 1, 2}
	if left := r.IntN(4); left < 3 {
		members = append(members[:left], members[left+1:]...)
	}
	for _, m := range members {
		if f == paused {
			l.etcd.Pause(l.t, m)
		} else {
			l.etcd.Kill(l.t, m)
		}
	}
	return func() {
		for _, m := range members {
			if f == paused {
				l.etcd.Resume(l.t, m)
			} else {
				l.etcd.Start(l.t, m)
			}
		}
	}
}
