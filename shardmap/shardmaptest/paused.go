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

// RunPaused stops a leading process until another leads, and lets it go on: none
// of its writes is taken. cmd is a process that calls PausedLeader on the store
// of d, without being started.
func RunPaused(t *testing.T, d shardmap.Directory, cmd *exec.Cmd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // says how it ended
	}()
	lines := bufio.NewScanner(out)
	await := func(want string) string {
		t.Helper()
		for lines.Scan() {
			if text := lines.Text(); strings.HasPrefix(text, want) {
				return text
			} else if strings.HasPrefix(text, "error") {
				t.Fatalf("the leader says %q", text)
			}
		}
		t.Fatalf("the leader ended without saying %q", want)
		return ""
	}
	var token uint64
	if _, err := fmt.Sscan(strings.TrimPrefix(await("token"), "token "), &token); err != nil {
		t.Fatal(err)
	}
	await("written")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	next, err := d.Campaign(ctx, "paused", "parent")
	if err != nil {
		t.Fatalf("Campaign: %v", err)
	}
	defer resign(t, next)
	if next.Token() <= token {
		t.Fatalf("the token went from %d to %d", token, next.Token())
	}
	// What the stopped leader wrote last is there; from here on only the new one writes.
	r, err := d.Record(ctx, "leader")
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await("deposed")
	await("lost")
	after, err := d.Record(ctx, "leader")
	if err != nil || after.Revision != r.Revision {
		t.Fatalf("the deposed leader wrote: %q at revision %d, then %q at %d (%v)", r.Value, r.Revision, after.Value, after.Revision, err)
	}
	if _, err := d.Fenced(next.Token()).PutRecord(ctx, "leader", []byte("parent"), after.Revision); err != nil {
		t.Fatalf("the new leader cannot write: %v", err)
	}
}
