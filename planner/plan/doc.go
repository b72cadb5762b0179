// Package plan has what the planner makes of a statement, as data: its kind, where its rows are, and how several shards
// carry it out. It knows no syntax tree.
//
// A [Statement] is valid for one text, search path and version of the schema, and many sessions share it. Routing
// ([Statement.Route]) evaluates the shard key on the bound parameters and looks it up in the current snapshot: no parsing,
// no catalogue, no allocation. A statement of several shards has a [Plan].
package plan
