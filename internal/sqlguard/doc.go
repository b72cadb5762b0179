// Package sqlguard reads SQL by PostgreSQL's lexical rules (manual, "Lexical
// Structure") without a grammar, and refuses statements that the C parser
// behind the planner could not survive.
//
// That parser recurses over the syntax tree. A statement whose tree is deep
// enough (30,000 links of 1+1+1+... on an 8 MiB stack; 2,000 on 512 KiB) ends
// the process with SIGSEGV, which Go cannot recover. So [Check] computes, from
// the tokens alone, an upper bound of the tree's height, and refuses with 54001
// what could come near. It never underestimates: every token of a run adds one,
// and a run is only cut where the grammar makes siblings of what stands left and
// right (commas, AND, OR, WHEN, WHERE, ...); set operations and joins, which nest
// leftwards across such cuts, are counted for the whole bracket.
//
// The scanner before the parser reads a run of operator characters anew at each
// operator and each opening of a comment in it: 160 KB of nested comments took 33
// seconds, deaf to cancel. [Check] adds up what is read again, and bounds it.
//
// Lists are not chains: an IN list or an INSERT with ten thousand rows passes.
//
// The lexer is also what the planner splices and fingerprints text with.
package sqlguard
