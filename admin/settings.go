package admin

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleavedb/cleave/engine"
	"github.com/cleavedb/cleave/shardmap"
)

// differing reports the settings that change answers and that a shard has otherwise than the default shard, with the
// statement that mends it. Routers give their connections the default shard's values as long as a shard can have them.
func differing(first string, shards []shardmap.Shard, reports []engine.Report) (out []Finding) {
	base := slices.IndexFunc(shards, func(s shardmap.Shard) bool { return s.Name == first })
	if base < 0 {
		return nil
	}
	want := reports[base].Alike
	for i := range shards {
		var names []string
		for name, value := range want {
			if is, known := reports[i].Alike[name]; known && is != value {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		for _, name := range names {
			out = append(out, Finding{
				Level: LevelWarning, Shard: shards[i].Name,
				What: fmt.Sprintf("%s is %q, on the default shard %s %q: routers give their connections the default shard's", name, reports[i].Alike[name], first, want[name]),
				Next: "on the shard: " + alterDatabase(reports[i].Database, name, want[name]) + "; where ALTER ROLE ... SET or the shard's URL says otherwise, RESET it there",
			})
		}
	}
	return out
}

// alterDatabase is the statement that gives a database's sessions a setting. value is as pg_settings prints it.
func alterDatabase(database, name, value string) string {
	text := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	switch {
	case name != "search_path":
	case value == `""`:
		text = "''" // a list of one name without characters
	case value != "":
		text = value // a list, quoted where it has to be
	}
	return `ALTER DATABASE "` + strings.ReplaceAll(database, `"`, `""`) + `" SET ` + name + " TO " + text
}
