//go:build crashpoint

package coordinator

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cleavedb/cleave/workflow"
)

// init ends the program when whoever started it has ended, however that was: a test that is
// killed leaves nothing behind.
func init() {
	if os.Getenv(pointVariable) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
}

// pointVariable names the file that asks for points.
const pointVariable = "CLEAVE_CRASH_POINT"

// atPoint waits before effect number n of a step, or, with -1, before what became of the
// effects is stored, or with afterTable, while the file that pointVariable names asks for it. The file says
// NUMBER|STEP|BACK|N. That the point was reached is said by the file NAME.reached, NUMBER|PID.
// Only programs built with the tag crashpoint have it: those of test/crash.
func atPoint(ctx context.Context, s *workflow.State, n int) {
	path := os.Getenv(pointVariable)
	want, err := os.ReadFile(path)
	if err != nil {
		return // none is asked for
	}
	if n >= 0 && s.Tries > 0 {
		if n--; n < 0 {
			return // the pause before another try
		}
	}
	number, point, _ := strings.Cut(string(want), "|")
	if point != fmt.Sprintf("%s|%v|%d", s.Step, s.Back, n) {
		return
	}
	pid := strconv.Itoa(os.Getpid())
	if err := os.WriteFile(path+"."+pid, []byte(number+"|"+pid), 0o600); err != nil {
		return
	}
	if err := os.Rename(path+"."+pid, path+".reached"); err != nil {
		return
	}
	for ctx.Err() == nil {
		if now, err := os.ReadFile(path); err != nil || string(now) != string(want) {
			return
		}
		pause(ctx, time.Millisecond)
	}
}
