package adminsql

import (
	"slices"
	"testing"

	"github.com/cleavedb/cleave/internal/virtual"
)

// TestSignatures: the catalogue says of each function what it takes.
func TestSignatures(t *testing.T) {
	told := map[string]bool{"next_id": true, "uuidv7": true} // the planner's
	for _, f := range virtual.Functions {
		d, ok := functions[f.Name]
		if !ok && told[f.Name] {
			continue
		}
		told[f.Name] = true
		var params []string
		required := 0
		for _, p := range f.Params {
			name := p.Name
			if p.Variadic {
				name += "..."
			}
			if !p.Optional {
				required++
			}
			params = append(params, name)
		}
		if !ok || !slices.Equal(params, d.params) || required != d.required {
			t.Errorf("cleave.%s(%s): the function takes %q, %d of them always", f.Name, f.Arguments(false), d.params, d.required)
		}
	}
	for name := range functions {
		if !told[name] {
			t.Errorf("cleave.%s is not in the catalogue", name)
		}
	}
}
