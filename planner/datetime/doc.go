// Package datetime finds PostgreSQL's special date/time inputs ('now', 'today', 'tomorrow', 'yesterday') in texts, and says
// which types and casts read them as times. It knows no statement.
package datetime
