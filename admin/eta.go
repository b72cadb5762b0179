package admin

import "github.com/cleavedb/cleave/workflow"

// eta is for how long a step that goes through rows will go on at the rate of the last seconds, seconds; -1: not known.
func eta(s *workflow.State, p *workflow.Progress) float64 {
	left, rate := float64(s.Bytes-p.Bytes), p.BytesPerSecond
	switch s.Step {
	case workflow.Copying, workflow.Verifying:
		if s.Bytes <= 0 || p.Bytes <= 0 {
			return -1
		}
	case workflow.Cleaning:
		if left, rate = float64(max(s.Rows, s.Copied)-p.Rows), p.RowsPerSecond; p.Rows <= 0 {
			return -1
		}
	default:
		return -1
	}
	if rate <= 0 {
		return -1
	}
	return max(0, left/rate)
}
