// Package sortkey merges sorted rows of several shards. Their keys are bytes that sort as PostgreSQL sorts the values: the
// encodings of the columns one after the other, those of descending columns inverted. Only types whose order is fixed by
// their values alone have one; texts only if their collation is that of bytes, which the caller finds out.
package sortkey
