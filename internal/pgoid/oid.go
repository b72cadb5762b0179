package pgoid

// OIDs of types, by the name that the type has in pg_type.
const (
	Bool                  uint32 = 16
	Bytea                 uint32 = 17
	Char                  uint32 = 18
	Name                  uint32 = 19
	Int8                  uint32 = 20
	Int2                  uint32 = 21
	Int2Vector            uint32 = 22
	Int4                  uint32 = 23
	Regproc               uint32 = 24
	Text                  uint32 = 25
	OID                   uint32 = 26
	TID                   uint32 = 27
	XID                   uint32 = 28
	OIDVector             uint32 = 30
	JSON                  uint32 = 114
	XML                   uint32 = 142
	PgNodeTree            uint32 = 194
	Float4                uint32 = 700
	Float8                uint32 = 701
	Unknown               uint32 = 705
	CharArray             uint32 = 1002
	ACLItem               uint32 = 1033
	Bpchar                uint32 = 1042
	Bit                   uint32 = 1560
	Varchar               uint32 = 1043
	Date                  uint32 = 1082
	Time                  uint32 = 1083
	Timestamp             uint32 = 1114
	Timestamptz           uint32 = 1184
	Interval              uint32 = 1186
	Timetz                uint32 = 1266
	Money                 uint32 = 790
	Numeric               uint32 = 1700
	Regprocedure          uint32 = 2202
	Regoper               uint32 = 2203
	Regoperator           uint32 = 2204
	Regclass              uint32 = 2205
	Regtype               uint32 = 2206
	Record                uint32 = 2249
	Any                   uint32 = 2276
	AnyArray              uint32 = 2277
	Void                  uint32 = 2278
	AnyElement            uint32 = 2283
	AnyNonArray           uint32 = 2776
	UUID                  uint32 = 2950
	AnyEnum               uint32 = 3500
	JSONB                 uint32 = 3802
	Regrole               uint32 = 4096
	Regnamespace          uint32 = 4089
	Regcollation          uint32 = 4191
	AnyCompatible         uint32 = 5077
	AnyCompatibleArray    uint32 = 5078
	AnyCompatibleNonArray uint32 = 5079
	RecordArray           uint32 = 2287
	TIDArray              uint32 = 1010
	TextArray             uint32 = 1009
	Int4Array             uint32 = 1007
	Int8Array             uint32 = 1016
	Int2Array             uint32 = 1005
	NameArray             uint32 = 1003
	OIDArray              uint32 = 1028
)

// FirstNormal is the first OID that objects of users have (FirstNormalObjectId of transam.h).
const FirstNormal uint32 = 16384
