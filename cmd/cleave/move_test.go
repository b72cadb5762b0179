package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cleavedb/cleave/admin"
)

// TestNotRolledBack: a rollback that was waited for and is given up is an error that says why, and a way back that is
// lost is not said to be kept.
func TestNotRolledBack(t *testing.T) {
	soon := time.Now().Add(time.Hour)
	for _, c := range []struct {
		w         admin.WorkflowInfo
		err, text string
	}{
		{w: admin.WorkflowInfo{ID: "m", Step: "rolled back", Ended: true}},
		{w: admin.WorkflowInfo{ID: "m", Step: "cancelled", Ended: true}},
		{w: admin.WorkflowInfo{ID: "m", Step: "cleaning", Back: true}},
		{w: admin.WorkflowInfo{ID: "m", Step: "opened", KeptUntil: &soon}, err: "m was not rolled back: somebody has ended that", text: "the way back is kept until"},
		{w: admin.WorkflowInfo{ID: "m", Step: "opened", From: "s0", BackLost: "the slot is gone", RowsUntil: &soon}, err: "m was not rolled back: there is no way back: the slot is gone",
			text: "there is no way back: the slot is gone\nthe old rows on s0 are deleted at"},
		{w: admin.WorkflowInfo{ID: "m", Step: "done", Ended: true, BackLost: "tables were changed"}, err: "tables were changed", text: "there is no way back: tables were changed\n"},
	} {
		err := notBack(&c.w)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v: %v", c.w, err)
		}
		if got := backText(&c.w); !strings.HasPrefix(got, c.text) || c.text == "" && got != "" || c.w.BackLost != "" && strings.Contains(got, "kept") {
			t.Errorf("%+v: %q", c.w, got)
		}
	}
}
