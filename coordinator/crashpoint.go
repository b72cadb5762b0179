package coordinator

import (
	"context"
	"fmt"

	"github.com/cleavedb/cleave/internal/crashpoint"
	"github.com/cleavedb/cleave/workflow"
)

// atPoint is where programs that are built for test/crash stop before effect number n of a step, or, with -1, before
// what became of the effects is stored, or with afterTable. The place is STEP|BACK|N.
func atPoint(ctx context.Context, s *workflow.State, n int) {
	if n >= 0 && s.Tries > 0 {
		if n--; n < 0 {
			return // the pause before another try
		}
	}
	crashpoint.At(ctx, func() string { return fmt.Sprintf("%s|%v|%d", s.Step, s.Back, n) })
}
