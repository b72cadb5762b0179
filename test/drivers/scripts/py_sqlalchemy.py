"""SQLAlchemy: its core, its ORM, its inspector and Alembic's operations, over psycopg2 and asyncpg."""
import asyncio
import contextlib
import datetime
import decimal
import enum
import io
import os
import uuid
import warnings

warnings.simplefilter("ignore")

import sqlalchemy as sa
from alembic.autogenerate import compare_metadata, produce_migrations, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.dialects import postgresql as pg
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, declarative_base, joinedload, relationship, selectinload, subqueryload

url = "%s://{PGUSER}@{PGHOST}:{PGPORT}/{PGDATABASE}".format(**os.environ)
engine = sa.create_engine(url % "postgresql+psycopg2", future=True)
Base = declarative_base()
tests = []


def test(f):
    tests.append(f)
    return f


def declare(table, column):
    """Says which column shards a table, where there are shards."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
        try:
            c.execute(sa.text("SELECT cleave.declare(:t, shard_key => :c)"), {"t": table, "c": column})
        except sa.exc.ProgrammingError as e:
            assert e.orig.pgcode == "3F000"


class Mood(enum.Enum):
    sad = 1
    ok = 2


tags = sa.Table("user_tags", Base.metadata, sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True),
                sa.Column("tag_id", sa.ForeignKey("tags.id"), primary_key=True))


class User(Base):
    __tablename__ = "users"
    id = sa.Column(sa.Integer, primary_key=True)
    name = sa.Column(sa.String(50), nullable=False, unique=True)
    mood = sa.Column(sa.Enum(Mood), server_default="ok")
    data = sa.Column(pg.JSONB, default=dict)
    nicks = sa.Column(pg.ARRAY(sa.Text), default=list)
    uid = sa.Column(pg.UUID(as_uuid=True), default=uuid.uuid4)
    made = sa.Column(sa.DateTime(timezone=True), server_default=sa.func.now())
    addresses = relationship("Address", back_populates="user", cascade="all, delete-orphan")
    tags = relationship("Tag", secondary=tags)


class Address(Base):
    __tablename__ = "addresses"
    id = sa.Column(sa.BigInteger, sa.Identity(), primary_key=True)
    user_id = sa.Column(sa.ForeignKey("users.id", ondelete="CASCADE"), index=True)
    email = sa.Column(sa.Text, sa.CheckConstraint("email LIKE '%@%'", name="has_at"))
    user = relationship("User", back_populates="addresses")


class Tag(Base):
    __tablename__ = "tags"
    id = sa.Column(sa.Integer, sa.Sequence("tag_ids", metadata=Base.metadata), primary_key=True)
    name = sa.Column(sa.Text, comment="what it says")


@test
def creates_all():
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    Base.metadata.create_all(engine)


@test
def inspects():
    i = sa.inspect(engine)
    assert {"users", "addresses", "tags", "user_tags"} <= set(i.get_table_names())
    assert [c["name"] for c in i.get_columns("addresses")] == ["id", "user_id", "email"]
    assert i.get_columns("addresses")[0]["identity"]["always"] is False
    assert i.get_pk_constraint("user_tags")["constrained_columns"] == ["user_id", "tag_id"]
    assert i.get_foreign_keys("addresses")[0]["options"] == {"ondelete": "CASCADE"}
    assert i.get_indexes("addresses")[0]["column_names"] == ["user_id"]
    assert i.get_unique_constraints("users")[0]["column_names"] == ["name"]
    assert i.get_check_constraints("addresses")[0]["name"] == "has_at"
    assert i.get_enums()[0]["labels"] == ["sad", "ok"]
    assert "tag_ids" in i.get_sequence_names() and i.has_sequence("tag_ids")
    assert i.get_columns("tags")[1]["comment"] == "what it says"
    assert i.get_table_oid("users") > 0 and "public" in i.get_schema_names()
    assert i.default_schema_name == "public"


@test
def reflects():
    m = sa.MetaData()
    m.reflect(engine)
    assert str(m.tables["users"].c.mood.type) == str(User.__table__.c.mood.type)
    assert m.tables["addresses"].c.user_id.references(m.tables["users"].c.id)


@test
def unit_of_work():
    with Session(engine) as s:
        s.add(User(name="a", mood=Mood.sad, data={"x": [1]}, nicks=["p", "q"], addresses=[Address(email="a@b"), Address(email="c@d")], tags=[Tag(name="t")]))
        s.add_all([User(name="n%d" % i, addresses=[Address(email="%d@x" % i)]) for i in range(100)])
        s.commit()
        u = s.query(User).filter_by(name="a").one()
        assert u.mood is Mood.sad and u.data == {"x": [1]} and u.nicks == ["p", "q"] and len(u.addresses) == 2 and u.made.tzinfo
        u.addresses.pop()
        u.name = "b"
        s.commit()
        assert s.query(Address).filter_by(user_id=u.id).count() == 1


@test
def loads():
    with Session(engine) as s:
        for how in (joinedload, selectinload, subqueryload):
            got = s.query(User).options(how(User.addresses)).order_by(User.id).limit(10).all()
            assert [len(u.addresses) for u in got] == [1] * 10
        got = s.execute(sa.select(User.name, sa.func.count(Address.id)).join(Address, isouter=True).group_by(User.id).having(sa.func.count() > 0).order_by(User.name)).all()
        assert len(got) == 101 and got[0] == ("b", 1)


@test
def expressions():
    with Session(engine) as s:
        sub = sa.select(Address.user_id).where(Address.email.like("1%")).cte("ones")
        assert s.scalar(sa.select(sa.func.count()).select_from(User).where(User.id.in_(sa.select(sub)))) == 11
        rank = sa.func.row_number().over(order_by=User.name).label("r")
        assert s.execute(sa.select(User.name, rank).order_by(rank).offset(1).limit(1)).one() == ("n0", 2)
        assert s.scalar(sa.select(User.data["x"][0].astext).where(User.name == "b")) == "1"
        assert s.scalar(sa.select(sa.func.array_length(User.nicks, 1)).where(User.nicks.any("p"))) == 2
        assert s.scalar(sa.select(sa.case((User.mood == Mood.sad, "s"), else_="o")).where(User.name == "b")) == "s"
        assert s.scalar(sa.select(sa.cast("1.50", sa.Numeric(10, 2)))) == decimal.Decimal("1.50")
        assert s.execute(sa.union_all(sa.select(sa.literal(1)), sa.select(sa.literal(2)))).scalars().all() == [1, 2]
        values = sa.values(sa.column("a", sa.Integer), name="v").data([(1,), (2,)])
        assert s.scalar(sa.select(sa.func.sum(values.c.a))) == 3


@test
def upserts():
    t = Tag.__table__
    with engine.begin() as c:
        c.execute(sa.text("CREATE UNIQUE INDEX tags_name ON tags (name)"))
        for _ in range(2):
            ins = pg.insert(t).values([{"name": "u1"}, {"name": "u2"}])
            c.execute(ins.on_conflict_do_update(index_elements=["name"], set_={"name": ins.excluded.name}))
        c.execute(pg.insert(t).values(name="u1").on_conflict_do_nothing())
        assert c.scalar(sa.select(sa.func.count()).where(t.c.name.like("u_"))) == 2
        assert c.execute(t.update().where(t.c.name == "u1").values(name="u3").returning(t.c.name)).scalar() == "u3"
        assert c.execute(t.delete().where(t.c.name.in_(["u2", "u3"]))).rowcount == 2


@test
def many_parameters():
    t = Tag.__table__
    with engine.begin() as c:
        got = c.execute(t.insert(), [{"name": "m%d" % i} for i in range(2500)])
        assert c.scalar(sa.select(sa.func.count()).where(t.c.name.like("m%"))) == 2500, got
        names = ["m%d" % i for i in range(2000)]
        assert len(c.execute(sa.select(t.c.id).where(t.c.name.in_(names))).all()) == 2000
        assert c.execute(t.delete().where(t.c.name.like("m%"))).rowcount == 2500


@test
def streams():
    with engine.connect() as c:
        got = c.execution_options(stream_results=True, max_row_buffer=10).execute(sa.text("SELECT * FROM generate_series(1, 1000) g"))
        assert sum(len(p) for p in got.partitions(7)) == 1000
        got = c.execution_options(yield_per=9).execute(sa.select(User.id).order_by(User.id))
        assert len(got.all()) == 101


@test
def savepoints():
    with Session(engine) as s:
        s.add(Tag(name="s1"))
        s.flush()
        try:
            with s.begin_nested():
                s.add(Tag(name="s1"))
                s.flush()
        except sa.exc.IntegrityError as e:
            assert e.orig.pgcode == "23505" and e.orig.diag.constraint_name == "tags_name"
        s.add(Tag(name="s2"))
        s.commit()
        assert s.query(Tag).filter(Tag.name.in_(["s1", "s2"])).count() == 2


@test
def isolation():
    for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE", "AUTOCOMMIT"):
        with engine.connect().execution_options(isolation_level=level) as c:
            assert c.get_isolation_level() == level or level == "AUTOCOMMIT"
            c.execute(sa.select(User.id).limit(1))
    e = sa.create_engine(url % "postgresql+psycopg2", future=True, isolation_level="REPEATABLE READ")
    with e.connect() as c:
        c = c.execution_options(postgresql_readonly=True, postgresql_deferrable=True)
        assert c.scalar(sa.text("SHOW transaction_read_only")) == "on"
    e.dispose()


@test
def locks():
    with Session(engine) as s:
        assert s.query(User).filter_by(name="b").with_for_update(of=User, nowait=True).one().name == "b"
        assert s.query(User).with_for_update(skip_locked=True, key_share=True).limit(1).one()


@test
def two_phase():
    with engine.connect() as c:
        t = c.begin_twophase()
        c.execute(sa.insert(Tag).values(name="2pc"))
        t.prepare()
        t.commit()


@test
def versions():
    class Doc(Base):
        __tablename__ = "docs"
        id = sa.Column(sa.Integer, primary_key=True)
        v = sa.Column(sa.Integer, nullable=False)
        text = sa.Column(sa.Text)
        __mapper_args__ = {"version_id_col": v}

    Doc.__table__.create(engine)
    with Session(engine) as s, Session(engine) as other:
        s.add(Doc(text="1"))
        s.commit()
        mine, its = s.query(Doc).one(), other.query(Doc).one()
        its.text = "2"
        other.commit()
        mine.text = "3"
        try:
            s.commit()
            raise AssertionError("no stale data error")
        except sa.orm.exc.StaleDataError:
            s.rollback()
    Doc.__table__.drop(engine)
    Base.metadata.remove(Doc.__table__)


@test
def with_a_key():
    t = sa.Table("orders", sa.MetaData(), sa.Column("tenant", sa.BigInteger, primary_key=True), sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
                 sa.Column("price", sa.Numeric(10, 2)), sa.Column("at", sa.Date))
    declare("orders", "tenant")
    t.drop(engine, checkfirst=True)
    t.create(engine)
    day = datetime.date(2026, 2, 1)
    with engine.begin() as c:
        c.execute(t.insert(), [{"tenant": i % 9, "id": i, "price": decimal.Decimal(i) / 4, "at": day + datetime.timedelta(i)} for i in range(90)])
    with engine.begin() as c:
        assert c.execute(sa.select(t).where(t.c.tenant == 3).order_by(t.c.id)).first() == (3, 3, decimal.Decimal("0.75"), datetime.date(2026, 2, 4))
        got = c.execute(sa.select(t.c.tenant, sa.func.sum(t.c.price)).group_by(t.c.tenant).order_by(sa.desc(sa.func.sum(t.c.price))).limit(2)).all()
        assert got == [(8, decimal.Decimal("121.25")), (7, decimal.Decimal("118.75"))], got
        assert c.execute(t.update().where(t.c.tenant.in_([1, 2])).values(price=t.c.price + 1)).rowcount == 20
        assert len(c.execute(t.delete().where(t.c.price > 20).returning(t.c.id)).all()) == 9
        ins = pg.insert(t).values(tenant=1, id=1, price=7)
        c.execute(ins.on_conflict_do_update(index_elements=["tenant", "id"], set_={"price": ins.excluded.price}))
        assert c.scalar(sa.select(t.c.price).where(t.c.tenant == 1, t.c.id == 1)) == 7
        other = t.alias()
        joined = sa.select(sa.func.count()).select_from(t.join(other, (t.c.tenant == other.c.tenant) & (t.c.id < other.c.id)))
        counts = c.execute(sa.select(sa.func.count()).select_from(t).group_by(t.c.tenant)).scalars()
        assert c.scalar(joined) == sum(n * (n - 1) // 2 for n in counts)


@test
def alembic_changes():
    with engine.begin() as c:
        op = Operations(MigrationContext.configure(c))
        op.create_table("pages", sa.Column("id", sa.Integer, primary_key=True), sa.Column("title", sa.String(20), nullable=False), sa.Column("n", sa.Text), comment="c")
        op.bulk_insert(sa.table("pages", sa.column("title")), [{"title": "x"}, {"title": "y"}])
        op.add_column("pages", sa.Column("views", sa.Integer, server_default="0", nullable=False))
        op.execute("UPDATE pages SET n = '7'")
        op.alter_column("pages", "n", type_=sa.Integer, postgresql_using="n::integer", new_column_name="m")
        op.alter_column("pages", "title", type_=sa.Text, nullable=True, comment="said")
        op.create_index("pages_views", "pages", ["views", sa.text("lower(title)")], postgresql_where=sa.text("views > 0"))
        op.create_unique_constraint("pages_title", "pages", ["title"])
        op.create_check_constraint("pages_m", "pages", "m > 0")
        op.create_table("lines", sa.Column("page", sa.Integer), sa.Column("text", sa.Text))
        op.create_foreign_key("lines_page", "lines", "pages", ["page"], ["id"], ondelete="SET NULL", deferrable=True, initially="DEFERRED")
        op.rename_table("lines", "rows")
        op.create_table_comment("rows", "of pages")
    with engine.begin() as c:
        assert c.execute(sa.text("SELECT title, m, views FROM pages ORDER BY id")).all() == [("x", 7, 0), ("y", 7, 0)]
        op = Operations(MigrationContext.configure(c))
        op.drop_constraint("lines_page", "rows", type_="foreignkey")
        op.drop_constraint("pages_m", "pages")
        op.drop_index("pages_views")
        op.drop_column("pages", "views")
        op.drop_table("rows")
        op.drop_table("pages")


@test
def alembic_concurrent_index():
    with engine.connect() as c:
        m = MigrationContext.configure(c)
        op = Operations(m)
        with m.autocommit_block():
            op.create_index("users_made", "users", ["made"], postgresql_concurrently=True)
            op.drop_index("users_made", postgresql_concurrently=True)
            op.execute("ALTER TYPE mood ADD VALUE 'glad'")


@test
def alembic_batch():
    with engine.begin() as c:
        op = Operations(MigrationContext.configure(c))
        with op.batch_alter_table("tags") as b:
            b.add_column(sa.Column("size", sa.Integer))
            b.alter_column("name", nullable=False)
        with op.batch_alter_table("tags") as b:
            b.drop_column("size")
            b.alter_column("name", nullable=True)


@test
def alembic_finds_differences():
    with engine.begin() as c:
        c.execute(sa.text("DROP INDEX tags_name"))
        c.execute(sa.text("DROP TABLE IF EXISTS orders"))
    with engine.connect() as c:
        m = MigrationContext.configure(c, opts={"compare_type": True, "compare_server_default": True, "include_object": lambda o, name, kind, *_: not (kind == "table" and name.startswith("alembic"))})
        assert compare_metadata(m, Base.metadata) == [], compare_metadata(m, Base.metadata)
        Base.metadata.tables["tags"].append_column(sa.Column("more", sa.Integer))
        assert "add_column('tags'" in render_python_code(produce_migrations(m, Base.metadata).upgrade_ops)


@test
def alembic_versions():
    from alembic.config import Config
    from alembic import command
    import tempfile
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as d:
        cfg = Config()
        cfg.set_main_option("script_location", d + "/m")
        cfg.config_file_name = d + "/alembic.ini"
        command.init(cfg, d + "/m")
        cfg = Config()
        cfg.set_main_option("script_location", d + "/m")
        cfg.set_main_option("sqlalchemy.url", url % "postgresql+psycopg2")
        for rev, parent, up, down in (("r1", None, "op.create_table('va', sa.Column('id', sa.Integer, primary_key=True))", "op.drop_table('va')"),
                                      ("r2", "r1", "op.add_column('va', sa.Column('b', sa.Text))", "op.drop_column('va', 'b')")):
            with open("%s/m/versions/%s.py" % (d, rev), "w") as f:
                f.write("from alembic import op\nimport sqlalchemy as sa\nrevision = %r\ndown_revision = %r\n\ndef upgrade():\n    %s\n\ndef downgrade():\n    %s\n" % (rev, parent, up, down))
        with open(d + "/m/env.py") as f:
            env = f.read().replace("fileConfig(config.config_file_name)", "pass")
        with open(d + "/m/env.py", "w") as f:
            f.write(env)
        command.upgrade(cfg, "head")
        assert [col["name"] for col in sa.inspect(engine).get_columns("va")] == ["id", "b"]
        command.downgrade(cfg, "r1")
        command.upgrade(cfg, "head")
        command.stamp(cfg, "r2")
        command.downgrade(cfg, "base")
        assert not sa.inspect(engine).has_table("va")


@test
def asynchronous():
    async def go():
        e = create_async_engine(url % "postgresql+asyncpg", future=True)
        async with e.begin() as c:
            await c.execute(sa.insert(Tag), [{"name": "as1"}, {"name": "as2"}])
            assert (await c.execute(sa.select(sa.func.count()).where(Tag.name.like("as_")))).scalar() == 2
            got = await c.stream(sa.select(User.id).order_by(User.id))
            assert len([r async for r in got]) == 101
        async with e.connect() as c:
            try:
                await c.execute(sa.insert(User).values(name="b"))
                raise AssertionError("no error")
            except sa.exc.IntegrityError:
                await c.rollback()
            await c.run_sync(lambda s: sa.inspect(s).get_columns("users"))
        await e.dispose()
    Base.metadata.tables["tags"]._columns.remove(Base.metadata.tables["tags"].c.more)
    asyncio.run(go())


@test
def pools():
    e = sa.create_engine(url % "postgresql+psycopg2", future=True, pool_size=2, max_overflow=0, pool_pre_ping=True, connect_args={"options": "-c statement_timeout=5000 -c timezone=UTC"})
    for _ in range(5):
        with e.connect() as a, e.connect() as b:
            assert a.scalar(sa.text("SHOW statement_timeout")) == "5s" and b.scalar(sa.text("SHOW timezone")) == "UTC"
            a.execute(sa.text("SET statement_timeout = 1"))
            a.commit()
            a.invalidate()
    e.dispose()


@test
def drops_all():
    Base.metadata.drop_all(engine)
    assert not {"users", "tags"} & set(sa.inspect(engine).get_table_names())


for f in tests:
    try:
        f()
        print("ok", f.__name__)
    except Exception as e:
        print("not ok %s: %s %s" % (f.__name__, type(e).__name__, str(e).replace("\n", " ")))
print("end")
