// Package datetime finds PostgreSQL's special date/time inputs ('now', 'today', 'tomorrow', 'yesterday') in texts, and says
// which types read them as times. It knows texts and OIDs only, no statement.
package datetime
