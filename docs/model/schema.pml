/* A schema change beside a router that learns of it late, for the model checker SPIN (spinroot.com). docs/design/schema.md says what it models.

   A sharded table is made with a row on the default shard D and one on the shard O, dropped, and made again. Nobody's statement may
   take the table for one of the default shard. The router that makes the change may die at any step; then another one recovers it.
   A second router learns of each version of the map late, may stand still for ever or go on much later, and loses its lease meanwhile.
   Claims, as assertions:
     - a read that the router passes on has both rows, or it is an error;
     - what a client was told that it is done, each read that begins afterwards finds.

   Broken on purpose, each must be found: -DNO_WAIT (shards commit without waiting for the members), -DHASTY (recovery does not wait),
   -DEARLY (a map is acknowledged while a statement by an older one is under way), -DLATE_MAP (the map changes after the shards),
   -DNO_LEASE (answers are passed on although the lease was lost meanwhile). */

#define D 0
#define O 1
#define CHANGES 3        /* made, dropped, made again */

/* The directory. Version v has v changes; odd ones have the table. */
byte map = 0;
bool listed = true;      /* the second router's lease counts as live */
byte acknowledged = 0;

/* The shards: how many changes each has committed. A prepared one locks the table there. */
byte has[2] = 0;
byte prepared[2] = 0;

byte told = 0;           /* the newest change whose client was told that it is done */
bool alive = true;       /* the router that makes the changes */

#define there(n) ((n) % 2 == 1)

#define followed(n) (acknowledged >= (n) || !listed)

inline finish(n) {
	/* COMMIT PREPARED; the second process finds nothing prepared. The default shard is last. */
	if
	:: prepared[O] == n -> has[O] = n; prepared[O] = 0
	:: else
	fi;
	if
	:: prepared[D] == n -> has[D] = n; prepared[D] = 0
	:: else
	fi
}

proctype changer() {
	byte n = 1;
	do
	:: n > CHANGES -> break
	:: n <= CHANGES ->
		if
		:: alive = false; break
		:: prepared[D] = n
		fi;
		if
		:: alive = false; break
		:: prepared[O] = n
		fi;
#ifdef LATE_MAP
		finish(n);
#endif
		if
		:: alive = false; break
		:: map = n
		fi;
#ifndef NO_WAIT
		if
		:: alive = false; break
		:: followed(n)
		fi;
#endif
		if
		:: alive = false; break
		:: prepared[O] == n -> has[O] = n; prepared[O] = 0
		:: prepared[O] != n
		fi;
		if
		:: alive = false; break
		:: prepared[D] == n -> has[D] = n; prepared[D] = 0
		:: prepared[D] != n
		fi;
		told = n;
		n++
	od
}

/* recovery ends what a dead router has left prepared: as the map says. */
proctype recovery() {
	byte n;
end:	do
	:: !alive && (prepared[D] > 0 || prepared[O] > 0) ->
		n = (prepared[D] > prepared[O] -> prepared[D] : prepared[O]);
		if
		:: map < n -> atomic { prepared[D] = 0; prepared[O] = 0 }   /* never decided */
		:: map >= n ->
#ifndef HASTY
			followed(n);
#endif
			finish(n);
			told = n
		fi
	:: !alive && prepared[D] == 0 && prepared[O] == 0 -> break
	od
}

/* read has a shard's part: 0 an error (no table), 1 its row. A table that is being changed is locked, but for one that is new. */
inline read(shard, got) {
	atomic {
		(prepared[shard] == 0 || !there(has[shard])) ->
		got = there(has[shard])
	}
}

/* The second router: what it plans by, and what is under way. */
byte known = 0;
byte under = 255;        /* the version of the statement that is under way */
bool held;               /* its lease was held without a gap since the statement began */

/* A map that makes a table waits until no statement by an older one is under way; others do not. */
proctype follower() {
end:	do
	:: known < map -> known = map
	:: !listed -> atomic { known = map; acknowledged = known; held = false; listed = true }   /* it joins again, with the current map */
#ifdef EARLY
	:: acknowledged < known && listed -> acknowledged = known
#else
	:: atomic { acknowledged < known && listed && (under == 255 || under > acknowledged || !there(acknowledged + 1)) -> acknowledged++ }
#endif
	od
}

proctype session() {
	byte before;
	bool d, o;
	byte n = 0;
	do
	:: n == 3 -> break
	:: n < 3 ->
		n++;
		atomic { listed -> under = known; held = true; before = told }
		/* The plan is made. The shards may be asked much later. */
		d = false; o = false;
		if
		:: there(under) -> read(D, d); read(O, o)
		:: else -> read(D, d)        /* taken for a table of the default shard */
		fi;
		atomic {
#ifndef NO_LEASE
			if
			:: held && listed ->
#endif
				assert(!(d && !there(under)));                               /* a part for the whole */
				assert(!(before == map && there(before) && !(d && o)))       /* it was told, and is not found */
#ifndef NO_LEASE
			:: else
			fi
#endif
			;
			under = 255
		}
	od
}

/* The lease ends: by the directory's clock, at any time. The router knows it by its own clock before. */
proctype clock() {
end:	do
	:: listed -> listed = false
	:: break
	od
}

init {
	atomic { run changer(); run recovery(); run follower(); run session(); run clock() }
}
