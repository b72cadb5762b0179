package shardmaptest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleavedb/cleave/shardmap"
	"github.com/cleavedb/cleave/sqlstate"
)

// PausedLeader is what a process does that RunPaused starts: it leads, and
// writes with its token until the directory refuses that. It prints what happens.
func PausedLeader(d shardmap.Directory) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	l, err := d.Campaign(ctx, "paused", "child")
	if err != nil {
		return err
	}
	fmt.Println("token", l.Token())
	records, rev := d.Fenced(l.Token()), uint64(0)
	if r, err := d.Record(ctx, "leader"); err == nil {
		rev = r.Revision // of one that led before
	}
	for n := 0; ; n++ {
		next, err := records.PutRecord(ctx, "leader", fmt.Append(nil, "child ", n), rev)
		switch {
		case errors.Is(err, shardmap.ErrDeposed):
			fmt.Println("deposed")
			<-l.Lost()
			fmt.Println("lost")
			return d.Close()
		case err != nil:
			return err
		}
		if rev = next; n == 0 {
			fmt.Println("written")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// pausedProcess is the process of RunPaused.
type pausedProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// startLeader starts a process that leads, and returns it with its token when it has written.
func startLeader(t *testing.T, cmd *exec.Cmd) (*pausedProcess, uint64) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &pausedProcess{t, cmd, bufio.NewScanner(out)}
	var token uint64
	if _, err := fmt.Sscan(strings.TrimPrefix(p.await("token"), "token "), &token); err != nil {
		t.Fatal(err)
	}
	p.await("written")
	return p, token
}

// await returns the line that begins with want.
func (p *pausedProcess) await(want string) string {
	p.t.Helper()
	for p.lines.Scan() {
		if text := p.lines.Text(); strings.HasPrefix(text, want) {
			return text
		} else if strings.HasPrefix(text, "error") {
			p.t.Fatalf("the leader says %q", text)
		}
	}
	p.t.Fatalf("the leader ended without saying %q", want)
	return ""
}

func (p *pausedProcess) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pausedProcess) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // says how it ended
}

// RunPaused stops a leading process until another leads, and lets it go on: none
// of its writes is taken. command returns a process that calls PausedLeader on the
// store of d, without being started.
func RunPaused(t *testing.T, d shardmap.Directory, command func() *exec.Cmd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var p *pausedProcess
	var token uint64
	var next *shardmap.Leadership
	for {
		p, token = startLeader(t, command())
		p.signal(syscall.SIGSTOP)
		var err error
		if next, err = d.Campaign(ctx, "paused", "parent"); err == nil {
			break
		}
		p.end()
		if sqlstate.CodeOf(err) != sqlstate.CannotConnectNow {
			t.Fatalf("Campaign: %v", err)
		}
		// It was stopped within a write, with the lock of a file: nobody else can write. Another one is stopped.
	}
	defer p.end()
	defer resign(t, next)
	if next.Token() <= token {
		t.Fatalf("the token went from %d to %d", token, next.Token())
	}
	// What the stopped leader wrote last is there; from here on only the new one writes.
	r, err := d.Record(ctx, "leader")
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGCONT)
	p.await("deposed")
	p.await("lost")
	after, err := d.Record(ctx, "leader")
	if err != nil || after.Revision != r.Revision {
		t.Fatalf("the deposed leader wrote: %q at revision %d, then %q at %d (%v)", r.Value, r.Revision, after.Value, after.Revision, err)
	}
	if _, err := d.Fenced(next.Token()).PutRecord(ctx, "leader", []byte("parent"), after.Revision); err != nil {
		t.Fatalf("the new leader cannot write: %v", err)
	}
}
