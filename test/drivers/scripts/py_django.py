"""Django: its own migrations of the contrib apps, its ORM, and a schema editor's changes."""
import os

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "USER": os.environ["PGUSER"],
                           "HOST": os.environ["PGHOST"], "PORT": os.environ["PGPORT"]}},
    INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth", "django.contrib.admin", "django.contrib.sessions", "django.contrib.messages", "django.contrib.sites"],
    MIDDLEWARE=[], SECRET_KEY="x", SITE_ID=1, USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {"context_processors": []}}], SILENCED_SYSTEM_CHECKS=["admin.E403", "admin.E404", "admin.E408", "admin.E409", "admin.E410"])
django.setup()

from django.contrib.auth.models import Group, Permission, User  # noqa: E402
from django.contrib.sessions.models import Session  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import IntegrityError, connection, models, transaction  # noqa: E402
from django.db.models import Count, F, Q  # noqa: E402
from django.utils import timezone  # noqa: E402

tests = []


def test(f):
    tests.append(f)
    return f


@test
def migrates():
    call_command("migrate", verbosity=0)
    assert Permission.objects.count() > 10


@test
def has_nothing_left_to_migrate():
    call_command("migrate", check_unapplied=True, plan=True, verbosity=0)


@test
def inspects():
    call_command("inspectdb", "auth_user", stdout=open(os.devnull, "w"))


@test
def creates_and_reads():
    User.objects.create_user("a", "a@b.c", "pw")
    assert User.objects.get(username="a").check_password("pw")
    assert User.objects.filter(Q(username__startswith="a") & ~Q(email="")).count() == 1


@test
def bulk():
    Group.objects.bulk_create([Group(name=f"g{i}") for i in range(50)], batch_size=20)
    assert Group.objects.count() == 50
    assert Group.objects.filter(name__in=["g1", "g2"]).update(name=F("name")) == 2


@test
def get_or_create():
    g, made = Group.objects.get_or_create(name="once")
    h, again = Group.objects.get_or_create(name="once")
    assert made and not again and g.pk == h.pk
    Group.objects.update_or_create(name="once", defaults={"name": "twice"})


@test
def relations():
    u = User.objects.get(username="a")
    u.groups.add(*Group.objects.all()[:3])
    u.user_permissions.set(Permission.objects.all()[:5])
    assert User.objects.annotate(n=Count("groups")).get(pk=u.pk).n == 3
    assert User.objects.prefetch_related("groups").select_related(None).get(pk=u.pk).groups.count() == 3


@test
def iterates():
    assert len(list(Permission.objects.iterator(chunk_size=5))) == Permission.objects.count()


@test
def atomic_nests():
    with transaction.atomic():
        Group.objects.create(name="outer")
        try:
            with transaction.atomic():
                Group.objects.create(name="outer")
        except IntegrityError:
            pass
    assert Group.objects.filter(name="outer").count() == 1


@test
def locks():
    with transaction.atomic():
        assert User.objects.select_for_update(skip_locked=True).get(username="a").username == "a"


@test
def deletes_with_relations():
    User.objects.get(username="a").delete()
    assert User.objects.count() == 0


@test
def sessions():
    Session.objects.create(session_key="k", session_data="d", expire_date=timezone.now())
    call_command("clearsessions")
    assert Session.objects.count() == 0


class Book(models.Model):
    title = models.CharField(max_length=50, db_index=True)
    data = models.JSONField(default=dict)
    made = models.DateTimeField(auto_now_add=True)

    class Meta:
        app_label = "shop"


@test
def edits_the_schema():
    with connection.schema_editor() as e:
        e.create_model(Book)
    pages = models.IntegerField(default=1)
    pages.set_attributes_from_name("pages")
    with connection.schema_editor() as e:
        e.add_field(Book, pages)
    longer = models.TextField()
    longer.set_attributes_from_name("title")
    with connection.schema_editor() as e:
        e.alter_field(Book, Book._meta.get_field("title"), longer)
        e.add_index(Book, models.Index(fields=["made"], name="book_made"))
        e.add_constraint(Book, models.CheckConstraint(check=Q(id__gt=0), name="positive"))
    with connection.cursor() as c:
        names = [col.name for col in connection.introspection.get_table_description(c, "shop_book")]
        assert names == ["id", "title", "data", "made", "pages"], names
        assert "book_made" in connection.introspection.get_constraints(c, "shop_book")
    with connection.schema_editor() as e:
        e.delete_model(Book)


@test
def migrates_back():
    call_command("migrate", "auth", "0011", verbosity=0)
    call_command("migrate", "auth", verbosity=0)


@test
def flushes():
    call_command("flush", interactive=False, verbosity=0)


for f in tests:
    try:
        f()
        print("ok", f.__name__)
    except Exception as e:
        print("not ok %s: %s %s" % (f.__name__, type(e).__name__, str(e).replace("\n", " ")))
        connection.close()
print("end")
