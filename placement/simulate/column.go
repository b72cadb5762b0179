package simulate

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Column is what a database's catalogue and statistics say of a column. Fields
// that are not known have their zero value.
type Column struct {
	Name    string
	Type    string // as format_type prints it
	Refused string // why it cannot be a shard key, "" if it can
	NotNull bool
	// Values is the number of values that an enum, a boolean or a CHECK (c IN (...))
	// allows, 0 if there is no such bound.
	Values int
	// Generated is true for a column that is computed from others.
	Generated bool
	// UpdateTriggers are triggers ON UPDATE OF this column; Cascades are foreign
	// keys through which it changes by ON UPDATE CASCADE or SET.
	UpdateTriggers, Cascades []string
	// References are the tables that a foreign key of it points to.
	References []string
	// InPrimaryKey and Indexed: a plain index or key has it as a column.
	InPrimaryKey, Indexed bool
	// UniqueWithout are the unique constraints and indexes that do not have it.
	UniqueWithout []string
	// Updates of rows of the table that the statistics count since Since, and
	// those of them that changed no indexed column (heap-only tuples).
	// Updates is -1 if there are no statistics.
	Updates, HeapOnly int64
	Since             string
}

// changingName are names of columns that mostly change during a row's life.
var changingName = regexp.MustCompile(`(?i)(^|_)(updated|modified|changed|last|status|state|stage|phase|count|total|balance|amount|quantity|qty|version|rev|revision|seen|expires|score|priority|position)(_|$)`)

// mutable says whether the column changes: evidence against it is sound, a name is not.
func (c *Column) mutable() (level Level, what, measured string) {
	switch {
	case c.Generated:
		return Warning, "is computed from other columns, and changes with them", "GENERATED in the catalogue"
	case len(c.UpdateTriggers) > 0:
		return Warning, "changes: somebody wrote a trigger for that", "trigger " + strings.Join(c.UpdateTriggers, ", ") + " ON UPDATE OF it"
	case len(c.Cascades) > 0:
		return Warning, "changes when the row that it refers to changes", "foreign key " + strings.Join(c.Cascades, ", ") + " with ON UPDATE"
	case c.fixed() != "":
		return "", "", ""
	case changingName.MatchString(c.Name):
		return Note, "is called as columns are that change", "the name only"
	}
	return "", "", ""
}

// fixed returns the proof that no row's value was changed, "" if there is none.
func (c *Column) fixed() string {
	switch {
	case c.Updates == 0:
		return "no row of the table was updated since " + c.Since
	case c.Updates > 0 && c.Indexed && c.HeapOnly == c.Updates:
		// PostgreSQL makes a heap-only tuple only if no indexed column has changed.
		return fmt.Sprintf("none of %s updates since %s changed an indexed column", Thousands(uint64(c.Updates)), c.Since)
	}
	return ""
}

func (a *adviser) column(c *Column) {
	if c.Refused != "" {
		a.say("type", Problem, fmt.Sprintf("%s cannot be a shard key", c.Name), c.Refused, "the type is "+c.Type,
			"choose another column, or add one of a type that can be a key")
	}
	if level, what, measured := c.mutable(); level != "" {
		a.say("mutable", level, c.Name+" "+what,
			"an UPDATE of a shard key would move the row to another shard: it is refused", measured,
			"choose a column that is set once, with INSERT; or see with pg_stat_user_tables and the application whether it is")
	}
	if !c.NotNull && a.r.Key.Nulls == 0 {
		a.say("null", Note, c.Name+" may be NULL, but no row has it so", "Cleave makes shard key columns NOT NULL, so such an INSERT will fail (23502)",
			"no NOT NULL in the catalogue", fmt.Sprintf("ALTER TABLE ... ALTER COLUMN %s SET NOT NULL, and see that the application agrees", c.Name))
	}
	if c.Values > 0 && c.Values < a.r.Shards {
		a.say("low-cardinality", Problem, fmt.Sprintf("%s can never have more than %d values", c.Name, c.Values),
			fmt.Sprintf("%d shards cannot all get rows by it alone", a.r.Shards), "the type or a CHECK constraint lists them",
			"use it only together with another column, or in a list keyspace")
	}
}

// uniqueness looks for constraints that Cleave would refuse on the sharded table.
func (a *adviser) uniqueness(facts []Column) {
	var bad []string
	for i := range facts {
		for _, u := range facts[i].UniqueWithout {
			if !slices.Contains(bad, u) {
				bad = append(bad, u)
			}
		}
	}
	if len(bad) == 0 {
		return
	}
	a.say("unique", Warning, fmt.Sprintf("%s without the shard key", strings.Join(bad, ", ")),
		"uniqueness is checked inside one shard, so each unique constraint has to contain the shard key: the table would be refused as it is",
		"the catalogue", fmt.Sprintf("add %s to them, such as PRIMARY KEY (%s, id)", a.name, a.name))
}
