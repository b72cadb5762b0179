package catalog

// PatternClasses are the operator classes that compare texts by bytes, with their OIDs.
var PatternClasses = map[string]int64{"text_pattern_ops": 4217, "varchar_pattern_ops": 4218}

// SameColumns reports whether an index is of these columns, in any order.
func SameColumns(nums []int16, cols []IndexColumn) bool {
	if len(nums) != len(cols) {
		return false
	}
	for _, n := range nums {
		hit := false
		for _, c := range cols {
			hit = hit || c.Num == n
		}
		if !hit {
			return false
		}
	}
	return true
}
