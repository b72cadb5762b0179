// Package outputname gives the columns of a query the names that PostgreSQL gives them (FigureColname in parse_target.c).
package outputname
