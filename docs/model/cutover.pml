/* The cutover of a move, for the model checker SPIN (spinroot.com). docs/design/moving.md says what it models.

   One part of a keyspace moves from shard S to shard T. Routers know the map by version and hold leases; two coordinators may
   both believe that they lead; writers that know no map (psql) try both shards; anybody may stop for ever or go on much later.
   Every interleaving is tried. Claims, as assertions:
     - at no moment do both shards take writes;
     - a shard that takes writes has every acknowledged write (nothing lost, nothing twice);
     - a read that a router passes on has every write that was acknowledged before it began.

   Broken on purpose, each must be found: -DNO_ACK (the owner changes without waiting for acknowledgements), -DNO_LOCK (the fence does
   not wait for writers), -DNO_TOKEN (shards listen to a deposed coordinator), -DNO_DRAIN (the target opens before the last changes
   were applied), -DNO_LEASE (a router does not look at its lease), -DLATE_OPEN (the map changes before the fence), -DBLIND_BACK (an opening is
   taken back by a coordinator that does not know whether it was done). */

#define S 0
#define T 1
#ifndef ROUTERS
#define ROUTERS 1     /* -DROUTERS=2 takes minutes: make model */
#endif
#define VERSIONS 6   /* of the map, at most */
#define WRITES 2     /* acknowledged writes, at most */
#define NONE 255

/* The directory. */
byte version = 0;
bool owner[VERSIONS];      /* by version */
bool held[VERSIONS];
byte leader = 1;           /* the token that writes */
mtype = { copied, holding, acked, fenced, drained, opened, done, taking_back };
mtype step = copied;       /* of the workflow's record */
bool listed[ROUTERS] = true;   /* the directory counts the router's lease as live */
byte acknowledged[ROUTERS] = 0;

/* The shards. */
bool takes[2];             /* the guard lets writes of the part through */
byte value[2] = 0;         /* writes that it has */
byte writers[2] = 0;       /* transactions with a row written and not committed */
byte seized[2] = 1;        /* the highest token seen */

byte writes = 0;           /* acknowledged */
byte retries = 0;

#define check() \
	assert(!(takes[S] && takes[T])); \
	assert(!takes[S] || value[S] == writes); \
	assert(!takes[T] || value[T] == writes)

inline commit(shard) {
	writers[shard]--; value[shard]++; writes++; check()
}

#ifdef NO_LEASE
#define serves true
#else
#define serves live
#endif

proctype router(byte me) {
	byte known = 0;        /* the map that it routes by */
	byte under = NONE;     /* the version that what is under way began with */
	bool live = true;      /* its own view of its lease */
	bool kept = true;      /* the lease was live without a gap since the statement began */
	byte need = NONE;      /* joined anew: the map that it needs */
	byte before, got;
	do
	:: atomic { known < version -> known = version }                      /* watches the map */
	:: atomic { acknowledged[me] < known && listed[me] && (under == NONE || under >= known) -> acknowledged[me] = known }
	:: atomic { live -> live = false; kept = false }            /* could not renew in time, by its own clock */
	:: atomic { !live && listed[me] && need == NONE -> listed[me] = false }   /* the directory's clock: later */
	:: atomic { !listed[me] && need == NONE && under == NONE ->         /* joins anew: live when it has the map of now, or a newer one */
		listed[me] = true; acknowledged[me] = 0; need = version }
	:: atomic { need != NONE && known >= need -> live = true; need = NONE }
	:: atomic { under == NONE && serves && !held[known] ->      /* a read */
		under = known; kept = true; before = writes };
		got = value[owner[under]];
		atomic {
			if
			:: !kept -> skip                                /* 57P03 */
			:: kept ->
				assert(got >= before)
			fi;
			under = NONE; got = 0; before = 0
		}
	:: atomic { under == NONE && serves && !held[known] && writes + writers[S] + writers[T] < WRITES ->  /* a write */
		under = known };
		if
		:: atomic { takes[owner[under]] -> writers[owner[under]]++ };
			if
			:: atomic { commit(owner[under]) }
			:: atomic { writers[owner[under]]-- }                   /* rolled back */
			fi
		:: !takes[owner[under]] -> skip                     /* refused: ZC001 */
		fi;
		under = NONE
	od
}

/* Somebody with psql. */
proctype stranger() {
	bit at;
	do
	:: at = S
	:: at = T
	:: atomic { takes[at] && writes + writers[S] + writers[T] < WRITES -> writers[at]++ };
		atomic { commit(at) }
	od
}

#ifdef NO_TOKEN
#define may(me, shard) true
#else
#define may(me, shard) (seized[shard] <= me)
#endif

/* all(v): every router that the directory counts has acknowledged version v */
#define has(r, v) (!listed[r] || acknowledged[r] >= v)
#if ROUTERS == 1
#define all(v) has(0, v)
#else
#define all(v) (has(0, v) && has(1, v))
#endif

inline advance(me, from, to) {
	atomic { if :: leader == me && step == from -> step = to :: else -> skip fi }
}

inline change(me, from, to, who, hold) {       /* map and record, one after the other in fact; the record follows the map */
	atomic {
		if
		:: leader == me && step == from && version + 1 < VERSIONS ->
			version++; owner[version] = who; held[version] = hold; step = to
		:: else -> skip
		fi
	}
}

#ifdef BLIND_BACK
#define sure true
#else
#define sure shut
#endif

proctype coordinator(byte me) {
	mtype at;
	bool shut = false;                            /* it has drained itself: nobody else has opened the target; and it is not about to, when it takes it back */
	leader >= me;                                 /* elected */
	atomic { if :: seized[S] < me -> seized[S] = me :: else -> skip fi };
	atomic { if :: seized[T] < me -> seized[T] = me :: else -> skip fi };
	do
	:: leader == me -> at = step;
		if
		:: at == copied -> change(me, copied, holding, S, true)
		:: at == holding ->
			if
#ifdef NO_ACK
			:: true -> advance(me, holding, acked)
#else
			:: all(version) -> advance(me, holding, acked)
#endif
			:: retries < 1 -> atomic { retries++; advance(me, holding, taking_back) }
			fi
		:: at == acked ->
#ifdef LATE_OPEN
			change(me, acked, fenced, T, false);
#endif
			if
#ifdef NO_LOCK
			:: atomic { may(me, S) -> takes[S] = false }
#else
			:: atomic { may(me, S) && writers[S] == 0 -> takes[S] = false }
#endif
				advance(me, acked, fenced)
			:: retries < 1 -> atomic { retries++; advance(me, acked, taking_back) }
			:: !may(me, S) -> break
			fi
		:: at == fenced ->
#ifndef NO_DRAIN
			if
			:: atomic { may(me, T) -> value[T] = value[S] }
			:: !may(me, T) -> break
			fi;
#endif
			if
			:: atomic { shut = (leader == me && step == fenced); advance(me, fenced, drained) }
			:: retries < 1 -> atomic { retries++; advance(me, fenced, taking_back) }
			fi
		:: at == drained ->                   /* from here on only forward, but if nobody has opened */
			if
			:: atomic { may(me, T) -> takes[T] = true; shut = false; check() };
				advance(me, drained, opened)
			:: sure && retries < 1 -> atomic { retries++; shut = false; advance(me, drained, taking_back); at = copied }
			:: !may(me, T) -> break
			fi
		:: at == opened -> change(me, opened, done, T, false)
		:: at == taking_back ->
			if
			:: atomic { may(me, S) -> takes[S] = true; check() }
			:: !may(me, S) -> break
			fi;
			change(me, taking_back, copied, S, false)
		:: at == done -> break
		fi
	:: leader != me && seized[S] > me && seized[T] > me -> break
	:: leader != me ->                            /* deposed, and it does not know: what it was about to do, it does */
		if
		:: at == acked -> atomic { may(me, S) && writers[S] == 0 -> takes[S] = false }
		:: at == drained -> atomic { may(me, T) -> takes[T] = true; check() }
		:: at == taking_back -> atomic { may(me, S) -> takes[S] = true; check() }
		:: true -> break
		fi; break
	od
}

init {
	atomic {
		takes[S] = true;
		run router(0);
#if ROUTERS == 2
		run router(1);
#endif
		run stranger();
		run coordinator(1); run coordinator(2)
	};
	leader = 2
}
