<?php
// PDO with PostgreSQL: its documented ways with a server.
function connection() {
    return new PDO(sprintf("pgsql:host=%s;port=%s;dbname=%s", getenv("PGHOST"), getenv("PGPORT"), getenv("PGDATABASE")), getenv("PGUSER"), null, [PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION]);
}
$key = "";
try { connection()->query("SELECT 1 FROM cleave.shards"); $key = " WITH (cleave.shard_key = 'k')"; } catch (PDOException $e) {}
function want($ok, $what = "") { if (!$ok) throw new Exception("wrong: " . json_encode($what)); }
$tests = [
    "prepared" => function () use ($key) {
        $d = connection();
        $d->exec("DROP TABLE IF EXISTS h"); $d->exec("CREATE TABLE h (k bigint, id bigint, note text, PRIMARY KEY (k, id))$key");
        $s = $d->prepare("INSERT INTO h VALUES (?, ?, ?)");
        for ($i = 0; $i < 30; $i++) $s->execute([$i % 10, $i, "n$i"]);
        $s = $d->prepare("SELECT note FROM h WHERE k = :k AND id = :id");
        for ($i = 0; $i < 30; $i++) { $s->execute([":k" => $i % 10, ":id" => $i]); want($s->fetchColumn() === "n$i", $i); }
    },
    "emulated" => function () {
        $d = connection(); $d->setAttribute(PDO::ATTR_EMULATE_PREPARES, true);
        $s = $d->prepare("SELECT count(*) FROM h WHERE note LIKE ?"); $s->execute(["n1%"]); want($s->fetchColumn() == 11);
    },
    "last_insert_id" => function () {
        $d = connection(); $d->exec("DROP TABLE IF EXISTS hs"); $d->exec("CREATE TABLE hs (id serial PRIMARY KEY, v text)");
        $d->exec("INSERT INTO hs (v) VALUES ('a')"); want($d->lastInsertId() == 1, "lastval"); want($d->lastInsertId("hs_id_seq") == 1, "currval");
    },
    "transaction" => function () {
        $d = connection(); $d->beginTransaction(); $d->exec("INSERT INTO h VALUES (1, 1000, 'x')"); $d->rollBack();
        want($d->query("SELECT count(*) FROM h WHERE id = 1000")->fetchColumn() == 0);
    },
    "error" => function () {
        try { connection()->exec("INSERT INTO h VALUES (1, 1, 'x')"); want(false); } catch (PDOException $e) { want($e->getCode() === "23505", $e->getCode()); }
    },
    "scrolls" => function () {
        $d = connection(); $d->beginTransaction();
        $s = $d->prepare("SELECT id FROM h ORDER BY id", [PDO::ATTR_CURSOR => PDO::CURSOR_SCROLL]); $s->execute();
        want($s->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_ABS, 5)[0] == 4); want($s->fetch(PDO::FETCH_NUM, PDO::FETCH_ORI_PRIOR)[0] == 3);
    },
    "copies" => function () {
        $d = connection(); want($d->pgsqlCopyFromArray("h", ["5\t5000\tc\n", "6\t5001\t\\N\n"]));
        want(count($d->pgsqlCopyToArray("h")) == 32, "rows");
    },
    "notifies" => function () {
        $d = connection(); $d->exec("LISTEN ch"); connection()->exec("NOTIFY ch, 'x'"); $d->query("SELECT 1"); $n = $d->pgsqlGetNotify(PDO::FETCH_ASSOC, 1000); want($n && $n["payload"] === "x", $n);
    },
    "columns" => function () {
        $s = connection()->query("SELECT id, note FROM h LIMIT 1"); want($s->getColumnMeta(1)["native_type"] === "text" && $s->getColumnMeta(1)["table"] === "h", $s->getColumnMeta(1));
    },
    "large_object" => function () {
        $d = connection(); $d->beginTransaction(); $o = $d->pgsqlLOBCreate(); $f = $d->pgsqlLOBOpen($o, "w"); fwrite($f, "abc"); $f = null; want(stream_get_contents($d->pgsqlLOBOpen($o)) === "abc"); $d->pgsqlLOBUnlink($o); $d->commit();
    },
    "booleans_and_bytea" => function () {
        $s = connection()->prepare("SELECT ?::boolean, ?::bytea"); $s->bindValue(1, true, PDO::PARAM_BOOL); $s->bindValue(2, "\0\xff", PDO::PARAM_LOB); $s->execute();
        $r = $s->fetch(PDO::FETCH_NUM); want($r[0] === true && stream_get_contents($r[1]) === "\0\xff", $r);
    },
];
foreach ($tests as $name => $f) {
    try { $f(); echo "ok $name\n"; } catch (Throwable $e) { echo "not ok $name: ", str_replace("\n", " ", $e->getMessage()), "\n"; }
}
echo "end\n";
