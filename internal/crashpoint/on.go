//go:build crashpoint

package crashpoint

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// variable names the file that asks for places. It says NUMBER|PLACE. The file NAME.reached says that the place was reached: NUMBER|PID.
const variable = "CLEAVE_CRASH_POINT"

// init ends the program when the process that started it has ended, in whatever way: a test
// that is killed leaves nothing behind.
func init() {
	if os.Getenv(variable) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
}

// asked is what the file says now.
func asked() (number, place string) {
	want, err := os.ReadFile(os.Getenv(variable))
	if err != nil {
		return "", "" // nothing is asked for
	}
	number, place, _ = strings.Cut(string(want), "|")
	return number, place
}

// At waits at a place while the file asks for it, or until ctx ends.
func At(ctx context.Context, place func() string) {
	number, want := asked()
	if number == "" || want != place() {
		return
	}
	path, pid := os.Getenv(variable), strconv.Itoa(os.Getpid())
	if err := os.WriteFile(path+"."+pid, []byte(number+"|"+pid), 0o600); err != nil {
		return
	}
	if err := os.Rename(path+"."+pid, path+".reached"); err != nil {
		return
	}
	for ctx.Err() == nil {
		if now, place := asked(); now != number || place != want {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

var steps struct {
	sync.Mutex
	number string
	done   int
}

// Step waits at a step of an operation while the file asks for it: as "steps of ACTOR|N" for step number N, from 1,
// of what the actor does in this process, counted from the first one since it was asked for. "" is anybody.
func Step(actor string) {
	number, want := asked()
	of, _, ok := strings.Cut(want, "|")
	if !ok || !strings.HasPrefix(of, "steps of ") || actor != "" && of != "steps of "+actor {
		return
	}
	steps.Lock()
	if steps.number != number {
		steps.number, steps.done = number, 0
	}
	steps.done++
	place := fmt.Sprintf("%s|%d", of, steps.done)
	steps.Unlock()
	At(context.Background(), func() string { return place })
}
