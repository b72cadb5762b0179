package translate

import (
	"fmt"
	"os"
)

// systemEmitters are the functions by which clients read the catalogue.
func systemEmitters() {
	simple(map[string]string{
		"version()":                                  "cleave_version()",
		"current_database()":                         "cleave_session('database')",
		"current_schema()":                           "cleave_session('schema')",
		"current_user()":                             "cleave_session('user')",
		"session_user()":                             "cleave_session('user')",
		"getdatabaseencoding()":                      "'UTF8'",
		"pg_client_encoding()":                       "'UTF8'",
		"pg_backend_pid()":                           fmt.Sprint(os.Getpid()),
		"pg_is_in_recovery()":                        "0",
		"pg_my_temp_schema()":                        "0",
		"pg_encoding_to_char(int4)":                  "CASE %1 WHEN 6 THEN 'UTF8' WHEN 0 THEN 'SQL_ASCII' ELSE '' END",
		"pg_char_to_encoding(name)":                  "CASE lower(%1) WHEN 'utf8' THEN 6 WHEN 'unicode' THEN 6 WHEN 'sql_ascii' THEN 0 ELSE -1 END",
		"current_schemas(bool)":                      "cleave_schemas(%1)",
		"format_type(oid,int4)":                      "cleave_format_type(%1, %2)",
		"pg_get_expr(pg_node_tree,oid)":              "cleave_second(%2, %1)",
		"pg_get_expr(pg_node_tree,oid,bool)":         "cleave_second(%2, %1)",
		"pg_get_userbyid(oid)":                       "cleave_role(%1)",
		"pg_table_is_visible(oid)":                   "cleave_visible(%1)",
		"pg_type_is_visible(oid)":                    "1",
		"pg_function_is_visible(oid)":                "1",
		"pg_operator_is_visible(oid)":                "1",
		"pg_opclass_is_visible(oid)":                 "1",
		"pg_collation_is_visible(oid)":               "1",
		"pg_statistics_obj_is_visible(oid)":          "0",
		"pg_get_indexdef(oid)":                       "cleave_indexdef(%1, 0, 0)",
		"pg_get_indexdef(oid,int4,bool)":             "cleave_indexdef(%1, %2, %3)",
		"pg_get_constraintdef(oid)":                  "cleave_constraintdef(%1, 0)",
		"pg_get_constraintdef(oid,bool)":             "cleave_constraintdef(%1, %2)",
		"pg_get_viewdef(oid)":                        "cleave_viewdef(%1)",
		"pg_get_viewdef(oid,bool)":                   "cleave_viewdef(%1)",
		"pg_get_triggerdef(oid)":                     "NULL",
		"pg_get_triggerdef(oid,bool)":                "NULL",
		"pg_get_ruledef(oid)":                        "NULL",
		"pg_get_ruledef(oid,bool)":                   "NULL",
		"pg_get_partkeydef(oid)":                     "NULL",
		"pg_get_partition_constraintdef(oid)":        "NULL",
		"pg_get_statisticsobjdef_columns(oid)":       "NULL",
		"pg_get_function_result(oid)":                "cleave_proc_result(%1)",
		"pg_get_function_sqlbody(oid)":               "NULL",
		"pg_get_function_arguments(oid)":             "cleave_proc_arguments(%1)",
		"pg_get_function_identity_arguments(oid)":    "cleave_proc_identity(%1)",
		"pg_get_serial_sequence(text,text)":          "NULL",
		"col_description(oid,int4)":                  "cleave_col_description(%1, %2)",
		"obj_description(oid,name)":                  "cleave_obj_description(%1)",
		"shobj_description(oid,name)":                "NULL",
		"pg_relation_is_publishable(regclass)":       "0",
		"pg_relation_size(regclass)":                 "cleave_table_size(%1, 0)",
		"pg_table_size(regclass)":                    "cleave_table_size(%1, 0)",
		"pg_indexes_size(regclass)":                  "cleave_table_size(%1, 1)",
		"pg_total_relation_size(regclass)":           "cleave_table_size(%1, 2)",
		"pg_database_size(name)":                     "cleave_database_size()",
		"pg_database_size(oid)":                      "cleave_database_size()",
		"pg_size_pretty(int8)":                       "cleave_size_pretty(%1)",
		"pg_tablespace_location(oid)":                "''",
		"to_regclass(text)":                          "cleave_to_reg(2205, %1)",
		"to_regtype(text)":                           "cleave_to_reg(2206, %1)",
		"to_regnamespace(text)":                      "cleave_to_reg(4089, %1)",
		"current_setting(text)":                      "cleave_setting(%1, 0)",
		"current_setting(text,bool)":                 "cleave_setting(%1, %2)",
		"set_config(text,text,bool)":                 "cleave_set_config(%1, %2, %3)",
		"txid_current_if_assigned()":                 "NULL",
		"pg_column_is_updatable(regclass,int2,bool)": "1",
	})
	emitters["pg_typeof(any)"] = func(_ *Translator, a []expr) string {
		typ := fmt.Sprint(a[0].typ)
		if a[0].lit || a[0].null || a[0].param > 0 {
			return typ
		}
		// The argument stays: an aggregate in it makes the query one of a single row.
		return "CASE WHEN (" + a[0].sql + ") IS NULL THEN " + typ + " ELSE " + typ + " END"
	}
	for _, p := range []string{"table", "schema", "database", "column", "any_column", "sequence", "function", "type", "language", "tablespace", "server"} {
		for _, sig := range []string{"text,text", "oid,text", "name,text,text", "name,oid,text", "oid,text,text", "oid,oid,text", "text,text,text", "oid,int2,text", "text,int2,text"} {
			emitters["has_"+p+"_privilege("+sig+")"] = tpl("cleave_true(%1)")
		}
	}
	for _, sig := range []string{"name,text", "oid,text", "name,name,text", "oid,oid,text"} {
		emitters["pg_has_role("+sig+")"] = tpl("cleave_true(%1)")
	}
}
